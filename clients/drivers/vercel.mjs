// The Vercel AI SDK with its three providers (four ways to speak), generateText and streamText.

import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, jsonSchema, stepCountIs, streamText, tool } from 'ai';

import { MAX_TURNS } from './transcript.mjs';

// Of models it does not know, and of settings it leaves out for them.
globalThis.AI_SDK_LOG_WARNINGS = false;

const models = {
  'vercel-openai-chat': (job, options) => createOpenAI(options).chat(job.model),
  'vercel-openai-responses': (job, options) => createOpenAI(options).responses(job.model),
  'vercel-compatible': (job, options) => createOpenAICompatible({ ...options, name: 'gateway' })(job.model),
  'vercel-anthropic': (job, options) => createAnthropic(options)(job.model),
};

function prepare(client, job, transcript) {
  const declare = ({ name, description, schema }) => {
    const execute = (value, { toolCallId }) => transcript.call(toolCallId, name, null, value);
    return [name, tool({ description, inputSchema: jsonSchema(schema), execute })];
  };
  return {
    model: models[client](job, { baseURL: `${job.url}/v1`, apiKey: job.key }),
    system: 'You are a helpful assistant.',
    prompt: job.prompt,
    maxRetries: job.retries,
    stopWhen: stepCountIs(MAX_TURNS),
    tools: Object.fromEntries(job.tools.map(declare)),
    // Without this the provider sends references to items it believes stored, not the items.
    providerOptions: { openai: { store: job.store } },
  };
}

function conclude(steps, transcript) {
  for (const step of steps) transcript.say(step.text);
  const last = steps.at(-1);
  if (last.finishReason !== 'stop') throw new Error(`finishReason ${last.finishReason}, wanted stop`);
}

async function generate(client, job, transcript) {
  const { steps } = await generateText(prepare(client, job, transcript));
  conclude(steps, transcript);
}

async function stream(client, job, transcript) {
  const result = streamText({ ...prepare(client, job, transcript), onError: () => {} });
  for await (const part of result.fullStream) {
    if (part.type === 'error') throw part.error;
    if (part.type === 'tool-error') throw part.error;
  }
  conclude(await result.steps, transcript);
}

async function leave(client, job, transcript) {
  const controller = new AbortController();
  const options = { abortSignal: controller.signal, onError: () => {} };
  for await (const text of streamText({ ...prepare(client, job, transcript), ...options }).textStream) {
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
