// What a client saw: the text of each turn, the calls it understood, the error it raised. It also runs the tools.

export class Transcript {
  constructor(job) {
    this.job = job;
    this.texts = [];
    this.calls = [];
    this.error = null;
  }

  say(text) {
    this.texts.push(text ?? '');
  }

  // `text` is the input's source as the SDK shows it, null where it shows only the value. The result is the tool's.
  call(id, name, text, value) {
    this.calls.push({ id, name, text, value });
    if (this.job.failing?.includes(name)) throw new Error(`${name} failed: „é“`);
    return `${name} got ${JSON.stringify(value)}`;
  }

  fail(error) {
    const status = error?.status ?? error?.statusCode ?? null;
    const kind = error?.constructor?.name ?? typeof error;
    this.error = { kind, status, message: String(error?.message ?? error).slice(0, 2000) };
  }

  report() {
    return { texts: this.texts, calls: this.calls, error: this.error };
  }
}

// A turn loop that never ends is a defect too.
export const MAX_TURNS = 6;

export async function converse(turn) {
  for (let count = 0; count < MAX_TURNS; count++) {
    if (!(await turn())) return;
  }
  throw new Error(`the model still calls tools after ${MAX_TURNS} turns`);
}
