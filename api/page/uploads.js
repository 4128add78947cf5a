// Sends a recording to the server, which makes a job of it. A large one goes past the API where the server offers that:
// straight to the bucket, in parts. The server says which of them the bucket has, so after an interruption the same file
// goes on where it was, a reload between them or not. Where the bucket refuses this page, it goes through the API.

import { Problem, get, send, upload } from "./http.js";

const DIRECT_BYTES = 16 * 2 ** 20;
const AT_ONCE = 4;
const PAGE = 32;
const STALLED_MS = 120000;
const TRIES = 5;
const PAUSE_MS = 500;
const KEPT = "What arrived is kept: try again, or choose the same file later, and it goes on.";

class PartLost extends Error {}

// The file's job, and whether it was submitted before (`unchanged`), which `request.deduplicate` asks for: its bytes are
// not sent again then. `tell` is called with what is being done and how many bytes are; `known`: its SHA-256.
export async function submitFile(file, request, tell, known) {
  // The API takes printable names only.
  const named = { ...request, name: (request.name ?? file.name).slice(-200).replace(/[\p{C}\p{Z}]/gu, " ") };
  const sha256 = known ?? await digest(file, (done) => tell("Reading", done));
  if (named.deduplicate) {
    try {
      return { job: await send("POST", "/v1/jobs", { ...named, source: `sha256:${sha256}` }), unchanged: true };
    } catch (error) {
      if (error.status !== 404) throw error;
    }
  }
  return { job: await sendFile(file, sha256, named, tell), unchanged: false };
}

async function sendFile(file, sha256, request, tell) {
  const offered = document.documentElement.hasAttribute("data-direct-uploads");
  if (!offered || file.size <= DIRECT_BYTES) return upload(file, request, (done) => tell("Sending", done));
  const past = { file, sha256, request, tell, upload: null, there: 0, began: false };
  const job = await sendPast(past);
  if (job) return job;
  const sent = await upload(file, request, (done) => tell("Sending through the server, since the bucket takes nothing from this page", done));
  if (past.upload) await send("DELETE", `/v1/uploads/${past.upload.id}`).catch(() => { /* it is dropped after some days */ });
  return sent;
}

// The job, or null where the server or the bucket takes nothing from this page.
async function sendPast(past) {
  const { file, sha256, tell } = past;
  const { name, project } = past.request;
  const type = /^[\w.+-]{1,40}\/[\w.+-]{1,50}$/.test(file.type) ? file.type : "application/octet-stream";
  const begin = { name, bytes: file.size, sha256, content_type: type, project };
  for (let tries = 1, there = 0; ; tries++) {
    try {
      past.upload ??= await send("POST", "/v1/uploads", begin);
      const path = `/v1/uploads/${past.upload.id}`;
      if (past.upload.state === "open") {
        await sendMissing(past, path);
        tell("Putting the parts together", file.size);
        past.upload = await send("POST", `${path}/complete`);
      }
      const job = { ...past.request, source: past.upload.source };
      return await send("POST", "/v1/jobs", job, { "Idempotency-Key": past.upload.id });
    } catch (error) {
      if (error.code === "not_offered") return null;
      await judge(error, past);
      // The API has just answered, and twice not a byte got to the bucket: its rules keep this page out, or a firewall.
      if (error instanceof PartLost && !past.began && tries > 1) return null;
      if (past.there > there) tries = 0;
      there = past.there;
      if (tries === TRIES) throw new Error(error instanceof Problem ? error.message : `The connection was lost. ${KEPT}`);
      tell("The connection was lost; trying again", there);
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS * 2 ** tries));
    }
  }
}

// Throws what another try cannot help.
async function judge(error, past) {
  await past.file.slice(0, 1).arrayBuffer().catch(() => { throw new Error("The file was changed or moved while it was being sent."); });
  if (!(error instanceof Problem) || error.status >= 500 || error.status === 429) return;
  if (!past.upload || ![404, 409].includes(error.status)) throw error;
  past.upload = null; // it is used, or gone, or whole by now: the server knows
}

// Send every part that the bucket lacks. Throws PartLost once those under way have ended.
async function sendMissing(past, path) {
  for (let first = 1; first !== null;) {
    const page = await get(`${path}/parts?from=${first}&limit=${PAGE}`);
    const waiting = page.items.filter((part) => part.url);
    if (first === 1) past.there = 0;
    past.there += page.items.reduce((sum, part) => sum + (part.received ? part.bytes : 0), 0);
    const partly = new Map();
    const tell = (part, done) => {
      partly.set(part, done);
      past.began ||= done > 0;
      past.tell("Sending", [...partly.values()].reduce((sum, bytes) => sum + bytes, past.there));
    };
    const runs = Array.from({ length: AT_ONCE }, async () => {
      for (let part = waiting.shift(); part; part = waiting.shift()) {
        try {
          await put(part, past.file, (done) => tell(part, done));
        } catch (error) {
          waiting.length = 0;
          throw error;
        }
        partly.delete(part);
        past.there += part.bytes;
      }
    });
    const lost = (await Promise.allSettled(runs)).find((run) => run.status === "rejected");
    if (lost) throw lost.reason;
    first = page.next;
  }
}

// XMLHttpRequest, since fetch does not report the progress of an upload. Nothing but the bytes: no key, no type.
function put(part, file, progressed) {
  return new Promise((resolve, reject) => {
    const sending = new XMLHttpRequest();
    sending.open("PUT", part.url);
    let stalled = 0;
    const alive = () => {
      clearTimeout(stalled);
      stalled = setTimeout(() => sending.abort(), STALLED_MS);
    };
    sending.upload.onprogress = (event) => { alive(); progressed(event.loaded); };
    sending.onload = () => (sending.status < 300 ? resolve() : reject(new PartLost()));
    sending.onerror = sending.onabort = () => reject(new PartLost());
    sending.onloadend = () => clearTimeout(stalled);
    alive();
    sending.send(file.slice(part.offset, part.offset + part.bytes));
  });
}

export function digest(file, read) {
  return new Promise((resolve, reject) => {
    const thread = new Worker("/page/sha256.js");
    const end = (settle, value) => { thread.terminate(); settle(value); };
    thread.onmessage = ({ data }) => {
      if (data.sha256) end(resolve, data.sha256);
      else if (data.failed) end(reject, new Error(`The file cannot be read. ${data.failed}`));
      else read(data.read);
    };
    thread.onerror = (event) => end(reject, new Error(event.message || "The file cannot be read."));
    thread.postMessage(file);
  });
}
