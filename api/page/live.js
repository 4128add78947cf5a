// Refreshes a view when an event arrives. While there is no stream (it broke, or the tab is hidden), the view is polled.

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
    const controller = new AbortController();
    open = controller;
    try {
      await follow(path, place, () => {
        alive = true;
        draw();
      }, controller.signal);
      over = true;
      draw();
    } catch {
      if (controller === open) setTimeout(() => controller === open && listen(), AGAIN_MS);
    }
    alive = false;
  }
  function disconnect() {
    const last = open;
    open = null;
    alive = false;
    last?.abort();
  }
  const update = () => {
    if (document.hidden) disconnect();
    else if (!over && !open) listen();
  };
  document.addEventListener("visibilitychange", update);
  update();
  return {
    isLive: () => alive,
    leave() {
      document.removeEventListener("visibilitychange", update);
      clearTimeout(due);
      disconnect();
    },
  };
}
