// Where words of a transcript have a space between them, as spool/domain/spacing.py has it.

const WIDE = /[\u3000-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uffef\u{20000}-\u{3ffff}]/u;
const CLUSTERED = /[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]/;
const LETTER = /\p{L}/u;

export function isApart(before, after) {
  const last = [...before.slice(-2)].at(-1) ?? "";
  const first = [...after.slice(0, 2)][0] ?? "";
  const wide = WIDE.test(last) + WIDE.test(first);
  if (wide) return wide === 1 && LETTER.test(last) && LETTER.test(first);
  return !(CLUSTERED.test(last) && CLUSTERED.test(first));
}

export function joinWords(texts) {
  const parts = [];
  for (const text of texts) {
    if (parts.length && text && isApart(parts.at(-1), text)) parts.push(" ");
    if (text) parts.push(text);
  }
  return parts.join("");
}
