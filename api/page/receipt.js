// The receipt of a job: what it states, how to check it, and its files. It is fetched when somebody asks for it, since the
// server signs it then, and logs who is given that of a recording with something closed.

import { facts, h, moment, notice, number } from "./dom.js";
import { get, save } from "./http.js";

// `closed()`: what the address has while closed words are shown.
export function receiptOf(job, closed) {
  const shown = h("div", {});
  const look = h("button", { type: "button", class: "small", onclick: () => load().catch((error) => notice(error.message, true)) }, "Show the receipt");
  async function load() {
    const query = closed();
    const address = `/v1/jobs/${job.id}/receipt${query}`;
    const { statement, signature } = await get(address);
    look.hidden = true;
    shown.replaceChildren(factsOf(statement, signature),
      h("div", { class: "row" },
        file("Receipt (.json)", () => save(address, "receipt.json")),
        file("Public keys (.pem)", saveKeys),
        file("Transcript (.json)", () => save(`/v1/jobs/${job.id}/transcript${query ? `${query}&` : "?"}recorded=true`, "transcript.json"))),
      howToCheck(job, query !== ""));
  }
  return h("section", { class: "small receipt" }, h("h2", {}, "Receipt"),
    h("p", { class: "quiet" }, "A signed statement of which recording became which transcript, by which model, options and code."), look, shown);
}

const file = (title, fetch) => h("button", { type: "button", class: "small", onclick: () => fetch().catch((error) => notice(error.message, true)) }, title);
const hash = (value) => (value === null ? "unknown" : h("code", { class: "hash" }, value));

function factsOf(statement, signature) {
  const { model, code, words_from: from, chunks } = statement;
  return facts([
    ["Ended", [moment(statement.ended_at), `, attempt ${statement.attempt}`]],
    ["Recording", hash(statement.audio_sha256)], ["Transcript", hash(statement.transcript_sha256)],
    ["Options", hash(statement.options_sha256)], ["Model", [`${model.name} `, hash(model.sha256)]],
    ...Object.entries(statement.others).map(([part, one]) => [part.replaceAll("_", " "), [`${one.name} `, hash(one.sha256)]]),
    ["Code", [`${code.version} `, hash(code.sha256)]],
    ["Chunks", `${number(chunks.length)}${statement.numerics ? `, decoded in ${statement.numerics}` : ""}`],
    from ? ["Words from", h("a", { href: `#/jobs/${from.job}` }, from.job)] : null,
    ["Signed with", h("code", {}, signature.key_id)],
  ]);
}

async function saveKeys() {
  const { items } = await get("/v1/receipt-keys");
  const link = h("a", { href: URL.createObjectURL(new Blob([items.map((one) => one.pem).join("")])), download: "keys.pem" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

function howToCheck(job, closed) {
  const commands = ["spool verify-receipt receipt.json --key keys.pem --audio RECORDING --transcript transcript.json",
    `spool verify ${job.id} --sample 1%${closed ? " --closed" : ""}`];
  return h("details", {}, h("summary", {}, "How to check it"),
    h("p", {}, "Keep the public keys apart from this server: a receipt proves as much as you trust them. This compares the three files with the recording, without a server:"),
    h("pre", { tabindex: "0" }, commands[0]),
    h("p", {}, "And this decodes a sample of the recording again, on a machine with the job's model:"),
    h("pre", { tabindex: "0" }, commands[1]));
}
