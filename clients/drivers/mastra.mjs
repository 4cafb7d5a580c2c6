// Mastra's agent over the three ways its users name a model: an OpenAI-compatible address, the same with `api: 'responses'`, and
// a model of the AI SDK.

import { createAnthropic } from '@ai-sdk/anthropic';
import { Agent } from '@mastra/core/agent';
import { createTool } from '@mastra/core/tools';

import { MAX_TURNS } from './transcript.mjs';

const models = {
  'mastra-chat': (job) => ({ providerId: 'gateway', modelId: job.model, url: `${job.url}/v1`, apiKey: job.key }),
  'mastra-responses': (job) => ({ ...models['mastra-chat'](job), api: 'responses' }),
  'mastra-anthropic': (job) => createAnthropic({ baseURL: `${job.url}/v1`, apiKey: job.key })(job.model),
};

function prepare(client, job, transcript) {
  const declare = ({ name, description, schema }) => {
    const execute = (value, context) => transcript.call(context?.agent?.toolCallId ?? null, name, null, value);
    return [name, createTool({ id: name, description, inputSchema: schema, execute })];
  };
  const agent = new Agent({
    id: 'agent',
    name: 'agent',
    instructions: 'You are a helpful assistant.',
    model: models[client](job),
    maxRetries: job.retries,
    tools: Object.fromEntries(job.tools.map(declare)),
  });
  const options = { maxSteps: MAX_TURNS, providerOptions: { openai: { store: job.store } } };
  return { agent, options };
}

function conclude({ steps, finishReason, error }, transcript) {
  if (error) throw error;
  for (const step of steps) transcript.say(step.text);
  if (finishReason !== 'stop') throw new Error(`finishReason ${finishReason}, wanted stop`);
}

async function generate(client, job, transcript) {
  const { agent, options } = prepare(client, job, transcript);
  conclude(await agent.generate(job.prompt, options), transcript);
}

async function stream(client, job, transcript) {
  const { agent, options } = prepare(client, job, transcript);
  const output = await agent.stream(job.prompt, options);
  for await (const part of output.fullStream) {
    if (part.type === 'error') throw part.payload.error;
  }
  conclude({ steps: await output.steps, finishReason: await output.finishReason, error: output.error }, transcript);
}

async function leave(client, job, transcript) {
  const { agent, options } = prepare(client, job, transcript);
  const controller = new AbortController();
  const output = await agent.stream(job.prompt, { ...options, abortSignal: controller.signal });
  for await (const text of output.textStream) {
    if (!transcript.texts.length) transcript.say(text);
    controller.abort();
  }
}

export const clients = Object.fromEntries(
  Object.keys(models).map((client) => [
    client,
    {
      leave: (job, transcript) => leave(client, job, transcript),
      generate: (job, transcript) => generate(client, job, transcript),
      stream: (job, transcript) => stream(client, job, transcript),
    },
  ]),
);
