// The API from the page: the key goes with each request, and a problem document becomes an Error.
// The key lives in this tab alone (sessionStorage) and is never part of an address.

import { h } from "./dom.js";

const KEPT = "spool-key";
let asking = null;

export class Problem extends Error {
  constructor(status, body) {
    super(body.detail ?? `The server answered ${status}.`);
    this.status = status;
    this.code = body.code ?? "";
  }
}

function headers(more = {}) {
  const key = sessionStorage.getItem(KEPT);
  return key ? { ...more, Authorization: `Bearer ${key}` } : more;
}

export async function ask(path, options = {}) {
  const response = await fetch(path, { ...options, headers: headers(options.headers), cache: "no-store" });
  if (response.status === 401) {
    const { detail } = await response.json().catch(() => ({}));
    await askForKey(sessionStorage.getItem(KEPT) ? detail : null);
    return ask(path, options);
  }
  if (!response.ok) throw new Problem(response.status, await response.json().catch(() => ({})));
  return response;
}

export const get = async (path) => (await ask(path)).json();
export const text = async (path) => (await ask(path)).text();
export const send = async (method, path, body) =>
  (await ask(path, {
    method,
    headers: body === undefined ? {} : { "Content-Type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  })).json();

// Server-sent events by fetch, since an EventSource cannot send a key. Ends where the server says so, throws where
// the stream breaks; `place.last` is then where it goes on.
export async function follow(path, place, heard, signal) {
  const after = place.last === null ? {} : { "Last-Event-ID": place.last };
  const response = await ask(path, { headers: { Accept: "text/event-stream", ...after }, signal });
  if (response.status === 204) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let kept = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error("The stream broke off.");
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

// XMLHttpRequest, since fetch does not tell how far an upload is.
export function upload(file, request, progressed) {
  return new Promise((resolve, reject) => {
    const form = new FormData();
    form.append("request", new Blob([JSON.stringify(request)], { type: "application/json" }));
    form.append("file", file, file.name);
    const sending = new XMLHttpRequest();
    sending.open("POST", "/v1/jobs");
    for (const [name, value] of Object.entries(headers())) sending.setRequestHeader(name, value);
    sending.upload.onprogress = (event) => event.lengthComputable && progressed(event.loaded / event.total);
    sending.onload = () => {
      let body = {};
      try { body = JSON.parse(sending.responseText); } catch { /* not from the API */ }
      if (sending.status < 300) resolve(body);
      else reject(new Problem(sending.status, body));
    };
    sending.onerror = () => reject(new Error("The connection broke."));
    sending.send(form);
  });
}

function askForKey(refused) {
  asking ??= new Promise((resolve) => {
    const input = h("input", { type: "password", required: true, autocomplete: "off", id: "key" });
    const dialog = h("dialog", { "aria-labelledby": "key-title" },
      h("form", { method: "dialog" },
        h("h2", { id: "key-title" }, "This server asks for a key"),
        refused ? h("p", { class: "card error", role: "alert" }, refused) : "",
        h("label", {}, "API key", input),
        h("p", { class: "quiet small" }, "It is kept in this tab until you close it. ",
          "Whoever runs the server makes one with ", h("code", {}, "spool keys create"), "."),
        h("div", { class: "row" }, h("button", { class: "primary" }, "Go on"))));
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    dialog.addEventListener("close", () => {
      sessionStorage.setItem(KEPT, input.value.replace(/[^\x21-\x7e]/g, ""));
      dialog.remove();
      asking = null;
      resolve();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
  return asking;
}
