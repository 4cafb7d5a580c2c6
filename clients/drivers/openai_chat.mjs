// The OpenAI SDK over Chat Completions: plain, raw stream, stream helper, and the tool runner both ways.

import OpenAI from 'openai';

import { converse, MAX_TURNS } from './transcript.mjs';

const connect = (job) =>
  new OpenAI({ baseURL: `${job.url}/v1`, apiKey: job.key, maxRetries: job.retries });

const declare = (tool) =>
  tool.custom
    ? { type: 'custom', custom: { name: tool.name, description: tool.description } }
    : { type: 'function', function: { name: tool.name, description: tool.description, parameters: tool.schema } };

const start = (job) => ({
  model: job.model,
  messages: [
    { role: 'system', content: 'You are a helpful assistant.' },
    { role: 'user', content: job.prompt },
  ],
  tools: job.tools.map(declare),
});

function answer(message, transcript) {
  transcript.say(message.content);
  return (message.tool_calls ?? []).map((call) => {
    const inner = call[call.type];
    const text = call.type === 'custom' ? inner.input : inner.arguments;
    const value = call.type === 'custom' ? text : JSON.parse(text);
    const content = transcript.call(call.id, inner.name, text, value);
    return { role: 'tool', tool_call_id: call.id, content };
  });
}

async function loop(job, transcript, ask) {
  const client = connect(job);
  const request = start(job);
  await converse(async () => {
    const { message, finish } = await ask(client, request);
    const results = answer(message, transcript);
    const wanted = results.length ? 'tool_calls' : 'stop';
    if (finish !== wanted) throw new Error(`finish_reason ${finish}, wanted ${wanted}`);
    request.messages.push(message, ...results);
    return results.length > 0;
  });
}

async function create(client, request) {
  const [choice] = (await client.chat.completions.create(request)).choices;
  return { message: choice.message, finish: choice.finish_reason };
}

async function accumulate(client, request) {
  const message = { role: 'assistant', content: '' };
  const calls = [];
  let finish = null;
  const options = { stream: true, stream_options: { include_usage: true } };
  for await (const chunk of await client.chat.completions.create({ ...request, ...options })) {
    for (const choice of chunk.choices) {
      message.content += choice.delta.content ?? '';
      for (const delta of choice.delta.tool_calls ?? []) {
        if (!calls[delta.index]) calls[delta.index] = { id: delta.id, type: delta.type, [delta.type]: delta[delta.type] };
        else {
          const call = calls[delta.index];
          const key = call.type === 'custom' ? 'input' : 'arguments';
          call[call.type][key] += delta[call.type][key] ?? '';
        }
      }
      finish = choice.finish_reason ?? finish;
    }
  }
  if (finish === null) throw new Error('the stream ended without a finish_reason');
  if (calls.length) message.tool_calls = calls;
  return { message, finish };
}

async function helper(client, request) {
  const stream = client.chat.completions.stream(request);
  const [choice] = (await stream.finalChatCompletion()).choices;
  return { message: choice.message, finish: choice.finish_reason };
}

async function run(job, transcript, stream) {
  const request = start(job);
  request.tools = job.tools.map((tool) => ({
    type: 'function',
    function: {
      name: tool.name,
      description: tool.description,
      parameters: tool.schema,
      parse: (text) => ({ text, value: JSON.parse(text) }),
      function: ({ text, value }) => transcript.call(null, tool.name, text, value),
    },
  }));
  const runner = connect(job).chat.completions.runTools({ ...request, stream }, { maxChatCompletions: MAX_TURNS });
  await runner.done();
  for (const message of runner.messages) if (message.role === 'assistant') transcript.say(message.content);
}

async function leave(job, transcript) {
  const stream = await connect(job).chat.completions.create({ ...start(job), stream: true });
  for await (const chunk of stream) {
    const text = chunk.choices[0]?.delta.content;
    if (text) return transcript.say(text); // leaving the loop closes the connection
  }
}

export const modes = {
  leave,
  create: (job, transcript) => loop(job, transcript, create),
  stream: (job, transcript) => loop(job, transcript, accumulate),
  helper: (job, transcript) => loop(job, transcript, helper),
  run: (job, transcript) => run(job, transcript, false),
  'run-stream': (job, transcript) => run(job, transcript, true),
};
