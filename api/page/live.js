// A view that is drawn again when something happened, by a stream of events. While the stream is not there
// (it broke, or the tab is hidden and gives its connection up), whoever asks every two seconds goes on asking.

import { follow } from "./http.js";

const AGAIN_MS = 5000;
const TOGETHER_MS = 400;

export function stayLive(path, refresh) {
  const place = { last: null };
  let open = null;
  let alive = false;
  let over = false;
  let due = 0;
  const draw = () => {
    due ||= setTimeout(() => {
      due = 0;
      refresh().catch(() => { alive = false; });
    }, TOGETHER_MS);
  };
  async function listen() {
    const mine = new AbortController();
    open = mine;
    try {
      await follow(path, place, () => {
        alive = true;
        draw();
      }, mine.signal);
      over = true;
      draw();
    } catch {
      if (mine === open) setTimeout(() => mine === open && listen(), AGAIN_MS);
    }
    alive = false;
  }
  function hush() {
    const last = open;
    open = null;
    alive = false;
    last?.abort();
  }
  const turn = () => {
    if (document.hidden) hush();
    else if (!over && !open) listen();
  };
  document.addEventListener("visibilitychange", turn);
  turn();
  return {
    isLive: () => alive,
    leave() {
      document.removeEventListener("visibilitychange", turn);
      clearTimeout(due);
      hush();
    },
  };
}
