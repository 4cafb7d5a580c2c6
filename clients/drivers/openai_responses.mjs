// The OpenAI SDK over Responses: plain, raw stream, stream helper. The whole output is replayed in the next request, but over a
// WebSocket, where each request continues the last response.

import OpenAI from 'openai';
import { ResponsesWS } from 'openai/resources/responses/ws';

import { converse } from './transcript.mjs';

const declare = (tool) =>
  tool.custom
    ? { type: 'custom', name: tool.name, description: tool.description }
    : { type: 'function', name: tool.name, description: tool.description, parameters: tool.schema, strict: false };

function answer(item, transcript) {
  if (item.type === 'function_call') {
    const output = transcript.call(item.call_id, item.name, item.arguments, JSON.parse(item.arguments));
    return [{ type: 'function_call_output', call_id: item.call_id, output }];
  }
  if (item.type === 'custom_tool_call') {
    const output = transcript.call(item.call_id, item.name, item.input, item.input);
    return [{ type: 'custom_tool_call_output', call_id: item.call_id, output }];
  }
  return [];
}

function begin(job) {
  const client = new OpenAI({ baseURL: `${job.url}/v1`, apiKey: job.key, maxRetries: job.retries });
  const request = {
    model: job.model,
    instructions: 'You are a helpful assistant.',
    input: [{ role: 'user', content: job.prompt }],
    tools: job.tools.map(declare),
    include: ['reasoning.encrypted_content'],
    store: false,
  };
  return { client, request };
}

async function loop(job, transcript, ask) {
  const { client, request } = begin(job);
  await converse(async () => {
    const response = await ask(client, request);
    if (response.status !== 'completed') throw new Error(`status ${response.status}`);
    if (!response.usage) throw new Error('no usage');
    transcript.say(response.output_text);
    const results = response.output.flatMap((item) => answer(item, transcript));
    request.input.push(...response.output, ...results);
    return results.length > 0;
  });
}

// Built from the item events alone, and compared with what the last event says.
async function accumulate(events) {
  const items = [];
  for await (const event of events) {
    const item = items[event.output_index];
    switch (event.type) {
      case 'response.output_item.added':
        items[event.output_index] = structuredClone(event.item);
        break;
      case 'response.function_call_arguments.delta':
        item.arguments += event.delta;
        break;
      case 'response.custom_tool_call_input.delta':
        item.input += event.delta;
        break;
      case 'response.failed':
        throw new Error(`response.failed: ${event.response.error?.message}`);
      case 'error':
        throw new Error(`error: ${event.message}`);
      case 'response.completed': {
        const { output } = event.response;
        if (output.length !== items.length) throw new Error(`${items.length} items came, ${output.length} in the end`);
        output.forEach((whole, index) => {
          for (const key of ['id', 'call_id', 'arguments', 'input']) {
            if (whole[key] !== items[index][key]) throw new Error(`${key}: ${items[index][key]}, then ${whole[key]}`);
          }
        });
        const parts = output.flatMap((whole) => (whole.type === 'message' ? whole.content : []));
        return { ...event.response, output_text: parts.map((part) => part.text).join('') };
      }
    }
  }
  throw new Error('the stream ended without response.completed');
}

async function leave(job, transcript) {
  const { client, request } = begin(job);
  for await (const event of await client.responses.create({ ...request, stream: true })) {
    if (event.type === 'response.output_text.delta') return transcript.say(event.delta);
  }
}

// The events of one answer over a WebSocket.
async function* messages(socket, message) {
  const events = socket.stream();
  socket.send({ type: 'response.create', ...message });
  for await (const event of events) {
    if (event.type === 'message') yield event.message;
    if (event.type === 'error') throw Object.assign(event.error, { status: event.error.error?.status });
    if (event.type === 'close') throw new Error(`closed with code ${event.code}`);
  }
}

async function websocket(job, transcript) {
  let socket = null;
  let previous = null;
  let known = 0;
  try {
    await loop(job, transcript, async (client, request) => {
      socket ??= new ResponsesWS(client);
      const message = { ...request, input: request.input.slice(known) };
      if (previous !== null) message.previous_response_id = previous;
      const response = await accumulate(messages(socket, message));
      previous = response.id;
      known = request.input.length + response.output.length;
      return response;
    });
  } finally {
    socket?.close();
  }
}

async function leaveWebsocket(job, transcript) {
  const { client, request } = begin(job);
  const socket = new ResponsesWS(client);
  for await (const event of messages(socket, request)) {
    if (event.type !== 'response.output_text.delta') continue;
    transcript.say(event.delta);
    socket.close();
    return;
  }
}

export const modes = {
  leave,
  websocket,
  'leave-websocket': leaveWebsocket,
  create: (job, transcript) => loop(job, transcript, (client, request) => client.responses.create(request)),
  stream: (job, transcript) =>
    loop(job, transcript, async (client, request) =>
      accumulate(await client.responses.create({ ...request, stream: true })),
    ),
  helper: (job, transcript) =>
    loop(job, transcript, async (client, request) => {
      const response = await client.responses.stream(request).finalResponse();
      if (response.error) throw new Error(`${response.status}: ${response.error.message}`);
      return response;
    }),
};
