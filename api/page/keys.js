// The keys of a screen, in a dialog that "?" opens.

import { h } from "./dom.js";

export function helpOf(title, keys) {
  const button = h("button", { type: "button", class: "small help", "aria-label": `${title} (?)`, onclick: show }, "Keys ?");
  function show() {
    const dialog = h("dialog", { "aria-label": title, class: "keys" }, h("h2", {}, title),
      h("dl", {}, keys.map(([key, does]) => [h("dt", {}, key.split("  ").map((one) => [h("kbd", {}, one), " "])), h("dd", {}, does)])),
      h("form", { method: "dialog" }, h("button", { class: "primary" }, "Close")));
    dialog.addEventListener("close", () => {
      dialog.remove();
      button.focus();
    });
    document.body.append(dialog);
    dialog.showModal();
  }
  return { button, show };
}
