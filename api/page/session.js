// A live session over /v1/listen that outlives its connection. What the server has not stored is kept, and sent to the
// connection that follows, which the server tells where to go on: no sample is lost or doubled, and each final comes once.

import { ask, savedKey } from "./http.js";

const RESUME_S = 60; // that the server waits for this page, and this page tries to come back
const SILENT_MS = 15000; // the server says more often what it has stored
const FIRST_PAUSE_MS = 200;
const LONGEST_PAUSE_MS = 5000;
const FOR_GOOD = [1003, 1007, 1008, 1009]; // what was sent cannot be taken, or another client goes on
const LEFT = 1000;

// `heard`: `opened(again)`, `partial(text)`, `final(start, text)`, `lost()`, and at the end `ended({ job, failed })`.
export function openSession(asked, heard) {
  const kept = []; // what the server has not stored, in the pieces in which it was spoken
  let base = 0; // bytes of the session before them
  let heardTo = 0; // seconds, the end of the last final
  let socket = null;
  let job = null;
  let ready = false; // the connection takes audio
  let finished = false;
  let failed = null;
  let told = 0; // when the server last said anything
  let lostAt = null;
  let pause = FIRST_PAUSE_MS;
  let again = 0;

  function connect() {
    const query = job ? { session: job, from: heardTo.toFixed(3) } : { ...asked, resume: String(RESUME_S) };
    const parameters = new URLSearchParams({ ...query, interim_results: "true", acknowledge: "true" });
    const address = `${location.origin.replace(/^http/, "ws")}/v1/listen?${parameters}`;
    const key = savedKey();
    socket = key ? new WebSocket(address, ["token", key]) : new WebSocket(address);
    told = Date.now();
    socket.onopen = () => { if (!job) start(); };
    socket.onmessage = ({ data }) => {
      told = Date.now();
      take(JSON.parse(data));
    };
    socket.onclose = ({ code, reason }) => lose(code, reason);
  }

  // The connection takes audio from here on.
  function start() {
    const resumed = lostAt !== null;
    ready = true;
    lostAt = failed = null;
    pause = FIRST_PAUSE_MS;
    kept.forEach((piece) => socket.send(piece));
    heard.opened(resumed);
    if (finished) socket.send('{"type": "CloseStream"}');
  }

  function take(message) {
    job = message.request_id ?? message.metadata?.request_id ?? job;
    if (message.type === "Stored") drop(message.bytes);
    else if (message.type === "Resumed") {
      drop(message.bytes);
      start();
    } else if (message.type === "Results") {
      const text = message.channel.alternatives[0].transcript;
      if (!message.is_final) heard.partial(text);
      else {
        heardTo = Math.max(heardTo, message.start + message.duration);
        if (text) heard.final(message.start, text);
      }
    } else if (message.type === "Error") failed = message.description;
  }

  // So many bytes of the session are stored for good.
  function drop(bytes) {
    while (kept.length && base < bytes) {
      const size = Math.min(kept[0].byteLength, bytes - base);
      if (size < kept[0].byteLength) kept[0] = kept[0].slice(size);
      else kept.shift();
      base += size;
    }
  }

  function lose(code, reason = "") {
    const refused = !ready;
    leave();
    if (code === LEFT || !job || FOR_GOOD.includes(code)) {
      end(code === LEFT ? failed : failed ?? (reason || (job && "The connection was lost.")));
      return;
    }
    failed ??= reason || null;
    lostAt ??= Date.now();
    heard.lost();
    if (Date.now() - lostAt > RESUME_S * 1000) {
      end("The connection was lost for more than a minute.");
      return;
    }
    again = setTimeout(connect, pause);
    pause = Math.min(2 * pause, LONGEST_PAUSE_MS);
    if (refused) endIfOver(); // a browser does not say why it was refused
  }

  async function endIfOver() {
    const state = await ask(`/v1/jobs/${job}`, { signal: AbortSignal.timeout(LONGEST_PAUSE_MS) })
      .then((answer) => answer.json()).then((shown) => shown.state, () => "unknown");
    if (lostAt !== null && ["done", "failed", "cancelled"].includes(state)) end(failed ?? "The connection was lost.");
  }

  function leave(code) {
    ready = false;
    if (!socket) return;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close(code);
    socket = null;
  }

  function end(why) {
    stop();
    heard.ended({ job, failed: why });
  }

  function stop() {
    clearInterval(watching);
    clearTimeout(again);
    leave(LEFT);
  }

  // A link may be dead without a word.
  const watching = setInterval(() => {
    const waits = job && socket && (!ready || !finished);
    if (waits && Date.now() - told > SILENT_MS) lose(0);
  }, 1000);
  connect();
  return {
    send(pcm) {
      if (finished) return;
      kept.push(pcm);
      if (ready) socket.send(pcm);
    },
    finish() {
      finished = true;
      if (ready) socket.send('{"type": "CloseStream"}');
    },
    leave: stop,
  };
}
