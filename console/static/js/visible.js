// Text that others chose, without characters that hide or disguise it: line breaks, controls, and marks that reverse the direction.

const HIDDEN = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu;
const HIDDEN_IN_LINES = /(?![\n\t\u200c\u200d])[\p{C}\p{Zl}\p{Zp}]/gu;
const SHORT = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

/** *text* with invisible characters as escapes, as the command line shows them. *hasLines*: it keeps its lines, tabs and joiners. */
export function visible(text, hasLines = false) {
  return text.replace(hasLines ? HIDDEN_IN_LINES : HIDDEN, escape);
}

function escape(character) {
  const code = character.codePointAt(0);
  const digits = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
  return SHORT[character] ?? `\\${digits[0]}${code.toString(16).padStart(digits[1], "0")}`;
}
