// Speak, and see the words settle: the microphone over a WebSocket, and the same words large for a hall.

import { clock, fill, h, notice } from "./dom.js";
import { get } from "./http.js";
import { openSession } from "./session.js";

const RATE = 16000;
const LINES = 200; // that stay on the page; all are in the transcript
const WAITING = "Waiting for the last words…";

export async function showListen(root, query) {
  const { items } = await get("/v1/models");
  // null: no worker has loaded it yet, so it comes after those that are known to stream.
  const able = [true, null].flatMap((known) => items.filter(({ streams }) => streams === known));
  const chosen = query.get("model") ?? "";
  const model = h("select", { name: "model", "aria-label": "Model" },
    able.map(({ name }) => h("option", { value: name, selected: name === chosen }, name)));
  const press = h("button", { type: "button", class: "primary", id: "listen" }, "Start listening");
  const large = h("button", { type: "button", "aria-pressed": "false" }, "Captions");
  const level = h("meter", { min: "0", max: "1", low: "0.02", high: "0.8", optimum: "0.3", value: "0", "aria-label": "Level" });
  const status = h("p", { class: "quiet", role: "status" }, "Nothing is recorded until you press the button.");
  const about = h("p", { class: "small quiet" });
  const tell = () => fill(about, able.find(({ name }) => name === model.value)?.good_for);
  model.addEventListener("change", tell);
  tell();
  const guide = h("div", { class: "guide" }, h("strong", {}, "Press “Start listening” and speak."),
    h("div", {}, "The browser asks whether this page may use the microphone. Your words appear here: grey while they may still change, then settled. “Captions” shows them large, for a hall; Escape ends that."));
  const settled = h("div");
  const partial = h("p", { class: "unsettled" });
  const words = h("div", { class: "captions", tabindex: "0", role: "log", "aria-live": "polite", "aria-label": "Words" }, guide, settled, partial);
  let session = null;
  let stopped = false;
  if (!able.length) {
    press.disabled = true;
    status.textContent = "No model here can stream; give a worker one that was trained in chunks, such as a streaming FastConformer.";
  }

  const ended = (text, bad) => {
    session = null;
    press.textContent = "Start listening";
    press.disabled = false;
    model.disabled = false;
    level.value = 0;
    partial.textContent = "";
    fill(status, text);
    if (bad) notice(status.textContent, true);
  };
  const heard = {
    level(value) { level.value = value; },
    opened() {
      status.textContent = stopped ? WAITING : "Listening. Speak.";
      press.disabled = stopped;
    },
    lost() {
      status.textContent = stopped ? "The connection was lost; connecting again for the last words…"
        : "The connection was lost; connecting again. What you say meanwhile is kept.";
    },
    partial(text) {
      guide.hidden ||= text !== "";
      partial.textContent = text;
      down();
    },
    final(start, text) {
      guide.hidden = true;
      partial.textContent = "";
      settled.append(h("p", {}, h("span", { class: "at" }, clock(start)), text));
      while (settled.childElementCount > LINES) settled.firstElementChild.remove();
      down();
    },
    ended,
  };
  const down = () => { words.scrollTop = words.scrollHeight; };
  press.addEventListener("click", async () => {
    if (session) {
      press.disabled = stopped = true;
      status.textContent = WAITING;
      session.stop();
      return;
    }
    press.textContent = "Stop";
    press.disabled = true;
    stopped = false;
    model.disabled = true;
    status.textContent = "Asking for the microphone…";
    settled.replaceChildren();
    try {
      session = await open(model.value, heard);
    } catch (error) {
      ended(error.name === "NotAllowedError" ? "The browser does not allow this page to use the microphone." : error.message, true);
    }
  });
  large.addEventListener("click", () => setLarge(!document.body.classList.contains("hall")));
  const setLarge = (on) => {
    document.body.classList.toggle("hall", on);
    large.setAttribute("aria-pressed", String(on));
    down();
  };
  const escape = (event) => event.key === "Escape" && setLarge(false);
  document.addEventListener("keydown", escape);
  root.append(h("h1", {}, "Live"),
    h("div", { class: "row listening" }, press, model, large, h("label", { class: "inline level" }, "Level", level)), about, status, words);
  if (query.get("view") === "captions") setLarge(true);
  return {
    leave() {
      document.removeEventListener("keydown", escape);
      setLarge(false);
      session?.drop();
    },
  };
}

async function open(model, heard) {
  const media = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1, echoCancellation: true, noiseSuppression: true } });
  const context = new AudioContext({ sampleRate: RATE });
  const close = () => {
    media.getTracks().forEach((track) => track.stop());
    context.close().catch(() => { /* closed before */ });
  };
  try {
    await context.audioWorklet.addModule("/page/microphone.js");
  } catch (error) {
    close();
    throw error;
  }
  const microphone = new AudioWorkletNode(context, "microphone", { numberOfOutputs: 0, channelCount: 1, channelCountMode: "explicit" });
  const session = openSession({ model, sample_rate: String(context.sampleRate) }, {
    ...heard,
    opened(again) {
      if (!again) context.createMediaStreamSource(media).connect(microphone);
      heard.opened();
    },
    async ended({ job, failed }) {
      close();
      if (job) heard.ended(failed ? [`${failed} What was said before is in `, link(job), "."] : ["Done: ", link(job)], failed);
      else heard.ended(failed ?? await why(model), true);
    },
  });
  microphone.port.onmessage = ({ data }) => {
    heard.level(data.level);
    session.send(data.pcm);
  };
  return {
    stop() {
      close();
      session.finish();
    },
    drop() {
      close();
      session.leave();
    },
  };
}

const link = (job) => h("a", { href: `#/jobs/${job}` }, "the recording and its transcript");

// A browser does not say why a session was refused.
async function why(model) {
  const waiting = await get("/v1/workers").catch(() => null);
  return waiting && !waiting.items.some((worker) => worker.alive && worker.models.includes(model))
    ? `No worker with ${model} is running.`
    : "The server did not take the session, or the connection was lost; it may have no room now.";
}
