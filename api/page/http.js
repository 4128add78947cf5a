// Requests to the API: each carries the key, and a problem document becomes an Error.
// The key is kept in this tab only (sessionStorage) and is never part of an address that is sent.

import { h } from "./dom.js";
import { request, saveKey, savedKey, takeEarly } from "./early.js";

export { savedKey };
let asking = null;

export class Problem extends Error {
  constructor(status, body) {
    super(body.detail ?? `The server answered ${status}.`);
    this.status = status;
    this.code = body.code ?? "";
    this.body = body;
  }
}

export async function ask(path, options = {}) {
  const early = options.method ? null : await takeEarly(path);
  const response = early ?? (await request(path, options));
  if (response.status === 401) {
    const { detail } = await response.json().catch(() => ({}));
    await askForKey(savedKey() ? detail : null);
    return ask(path, options);
  }
  if (!response.ok) throw new Problem(response.status, await response.json().catch(() => ({})));
  return response;
}

export const get = async (path) => (await ask(path)).json();
export const text = async (path) => (await ask(path)).text();
export async function send(method, path, body, more = {}) {
  const response = await ask(path, {
    method,
    headers: body === undefined ? more : { ...more, "Content-Type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  return response.status === 204 ? null : response.json();
}

// Server-sent events by fetch, since an EventSource cannot send a key. Returns when the server ends the stream and
// throws when it breaks; `place.last` is then where to resume.
export async function follow(path, place, heard, signal) {
  const after = place.last === null ? {} : { "Last-Event-ID": place.last };
  const response = await ask(path, { headers: { Accept: "text/event-stream", ...after }, signal });
  if (response.status === 204) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let kept = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error("The stream was interrupted.");
    const messages = (kept + value).split("\n\n");
    kept = messages.pop();
    for (const message of messages) {
      const fields = Object.fromEntries(message.split("\n").map((line) => line.split(/: (.*)/s, 2)));
      if (fields.id) place.last = fields.id;
      if (fields.event === "end") return;
      if (fields.event) heard(fields.event, JSON.parse(fields.data));
    }
  }
}

export async function save(path, name) {
  const link = h("a", { href: URL.createObjectURL(await (await ask(path)).blob()), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

// XMLHttpRequest, since fetch does not report the progress of an upload.
export function upload(file, request, progressed) {
  return new Promise((resolve, reject) => {
    const form = new FormData();
    form.append("request", new Blob([JSON.stringify(request)], { type: "application/json" }));
    form.append("file", file, file.name);
    const sending = new XMLHttpRequest();
    sending.open("POST", "/v1/jobs");
    if (savedKey()) sending.setRequestHeader("Authorization", `Bearer ${savedKey()}`);
    sending.upload.onprogress = (event) => progressed(Math.min(event.loaded, file.size));
    sending.onload = () => {
      let body = {};
      try { body = JSON.parse(sending.responseText); } catch { /* not from the API */ }
      if (sending.status < 300) resolve(body);
      else reject(new Problem(sending.status, body));
    };
    sending.onerror = () => reject(new Error("The connection was lost. Nothing was kept; send it again."));
    sending.send(form);
  });
}

function askForKey(refused) {
  asking ??= new Promise((resolve) => {
    const input = h("input", { type: "password", required: true, autocomplete: "off", id: "key" });
    const dialog = h("dialog", { "aria-labelledby": "key-title", class: "required" },
      h("form", { method: "dialog" },
        h("h2", { id: "key-title" }, "This server requires a key"),
        refused ? h("p", { class: "card error", role: "alert" }, refused) : "",
        h("label", {}, "API key", input),
        h("p", { class: "quiet small" }, "It is kept in this tab until you close it. Open the address that ",
          h("code", {}, "spool up"), " printed, or create a key with ", h("code", {}, "spool keys create"), "."),
        h("div", { class: "row" }, h("button", { class: "primary" }, "Continue"))));
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    dialog.addEventListener("close", () => {
      saveKey(input.value.replace(/[^\x21-\x7e]/g, ""));
      dialog.remove();
      asking = null;
      resolve();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
  return asking;
}
