// Asks for the recording in the address while the other modules are still on their way: a module without imports, the
// first of the page. Also the key, since those requests carry it, too.

const STORED = "spool-key";
const KEPT_MS = 10000; // an answer that nobody took by then may be out of date

// `spool up` prints an address that ends in #token=…: the token is kept and leaves the address at once.
const token = /^#token=([\w-]+)$/.exec(location.hash);
if (token) {
  saveKey(token[1]);
  history.replaceState(null, "", location.pathname + location.search);
}

export const savedKey = () => sessionStorage.getItem(STORED);
export function saveKey(key) {
  sessionStorage.setItem(STORED, key);
}

export function request(path, options = {}) {
  const key = savedKey();
  const headers = key ? { ...options.headers, Authorization: `Bearer ${key}` } : options.headers;
  return fetch(path, { ...options, headers, cache: "no-store" });
}

const asked = new Map();
const leaving = new AbortController();
const [, job] = /^#\/jobs\/(\w+)(?:\?|$)/.exec(location.hash) ?? [];
if (job) {
  for (const path of [`/v1/jobs/${job}`, `/v1/jobs/${job}/transcript`]) {
    const answer = request(path, { signal: leaving.signal, priority: "high" });
    answer.catch(() => {}); // whoever takes it is told
    asked.set(path, answer);
  }
  setTimeout(forget, KEPT_MS);
  addEventListener("hashchange", forget, { once: true });
}

function forget() {
  if (!asked.size) return; // a body that is being read goes on
  asked.clear();
  leaving.abort();
}

// The answer that was asked for early, once; null where there is none, or it was no success: it may be one by now.
export async function takeEarly(path) {
  const answer = asked.get(path);
  asked.delete(path);
  const response = await answer?.catch(() => null);
  return response?.ok ? response : null;
}
