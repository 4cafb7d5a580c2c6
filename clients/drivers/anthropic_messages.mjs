// The Anthropic SDK over Messages: plain, raw stream, stream helper, and the tool runner both ways.

import Anthropic from '@anthropic-ai/sdk';

import { converse, MAX_TURNS } from './transcript.mjs';

const connect = (job) => new Anthropic({ baseURL: job.url, apiKey: job.key, maxRetries: job.retries });

const start = (job) => ({
  model: job.model,
  max_tokens: 4096,
  system: 'You are a helpful assistant.',
  messages: [{ role: 'user', content: job.prompt }],
});

const declare = (tool) => ({ name: tool.name, description: tool.description, input_schema: tool.schema });

const textOf = (message) =>
  message.content.map((block) => (block.type === 'text' ? block.text : '')).join('');

async function loop(job, transcript, ask) {
  const client = connect(job);
  const request = { ...start(job), tools: job.tools.map(declare) };
  await converse(async () => {
    const { message, sources = {} } = await ask(client, request);
    transcript.say(textOf(message));
    const results = message.content
      .filter((block) => block.type === 'tool_use')
      .map((block) => ({
        type: 'tool_result',
        tool_use_id: block.id,
        content: transcript.call(block.id, block.name, sources[block.id] ?? null, block.input),
      }));
    const wanted = results.length ? 'tool_use' : 'end_turn';
    if (message.stop_reason !== wanted) throw new Error(`stop_reason ${message.stop_reason}, wanted ${wanted}`);
    request.messages.push({ role: 'assistant', content: message.content }, { role: 'user', content: results });
    return results.length > 0;
  });
}

async function accumulate(client, request) {
  let message = null;
  const sources = {};
  for await (const event of await client.messages.create({ ...request, stream: true })) {
    const block = message?.content[event.index];
    switch (event.type) {
      case 'message_start':
        message = structuredClone(event.message);
        break;
      case 'content_block_start':
        message.content[event.index] = structuredClone(event.content_block);
        if (event.content_block.type === 'tool_use') sources[event.content_block.id] = '';
        break;
      case 'content_block_delta':
        if (event.delta.type === 'text_delta') block.text += event.delta.text;
        if (event.delta.type === 'thinking_delta') block.thinking += event.delta.thinking;
        if (event.delta.type === 'signature_delta') block.signature = event.delta.signature;
        if (event.delta.type === 'input_json_delta') sources[block.id] += event.delta.partial_json;
        break;
      case 'content_block_stop':
        if (block.type === 'tool_use') block.input = JSON.parse(sources[block.id] || '{}');
        break;
      case 'message_delta':
        message.stop_reason = event.delta.stop_reason;
        break;
      case 'message_stop':
        return { message, sources };
    }
  }
  throw new Error('the stream ended without message_stop');
}

async function run(job, transcript, stream) {
  const tools = job.tools.map((tool) => ({
    ...declare(tool),
    parse: (value) => value,
    run: (value, context) => transcript.call(context?.toolUse?.id ?? null, tool.name, null, value),
  }));
  const runner = connect(job).beta.messages.toolRunner({ ...start(job), tools, stream, max_iterations: MAX_TURNS });
  for await (const turn of runner) transcript.say(textOf(stream ? await turn.finalMessage() : turn));
}

async function leave(job, transcript) {
  const request = { ...start(job), tools: job.tools.map(declare) };
  for await (const event of await connect(job).messages.create({ ...request, stream: true })) {
    if (event.delta?.type === 'text_delta') return transcript.say(event.delta.text);
  }
}

export const modes = {
  leave,
  create: (job, transcript) =>
    loop(job, transcript, async (client, request) => ({ message: await client.messages.create(request) })),
  stream: (job, transcript) => loop(job, transcript, accumulate),
  helper: (job, transcript) =>
    loop(job, transcript, async (client, request) => ({ message: await client.messages.stream(request).finalMessage() })),
  run: (job, transcript) => run(job, transcript, false),
  'run-stream': (job, transcript) => run(job, transcript, true),
};
