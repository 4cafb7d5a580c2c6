// Runs jobs for the tests: one JSON object per line in, one per line out. The SDKs are loaded once for all jobs.
//
// A job says which client and mode, the base URL of the server, the model and the tools; the result is a `Transcript`,
// or the error as the SDK raised it.

import { createInterface } from 'node:readline';

import { modes as anthropicMessages } from './anthropic_messages.mjs';
import { clients as mastra } from './mastra.mjs';
import { modes as openaiChat } from './openai_chat.mjs';
import { modes as openaiResponses } from './openai_responses.mjs';
import { Transcript } from './transcript.mjs';
import { clients as vercel } from './vercel.mjs';

const clients = {
  'openai-chat': openaiChat,
  'openai-responses': openaiResponses,
  'anthropic-messages': anthropicMessages,
  ...vercel,
  ...mastra,
};

// Whatever a library prints must not get into the channel.
console.log = console.info = console.error;

// An error of a stream can surface a second time as a rejection that nothing awaits; the job has reported it already.
process.on('unhandledRejection', () => {});

for await (const line of createInterface({ input: process.stdin })) {
  const job = JSON.parse(line);
  const transcript = new Transcript(job);
  try {
    await clients[job.client][job.mode](job, transcript);
  } catch (error) {
    transcript.fail(error);
  }
  process.stdout.write(JSON.stringify(transcript.report()) + '\n');
}
