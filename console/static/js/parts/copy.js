// What a page gives away: commands for a terminal, and links to what it shows.

import { h } from "../dom.js";
import { button } from "./basics.js";
import { confirm } from "./dialog.js";
import { toast } from "./toast.js";

/** A command for a terminal with a button that copies it. *destroys* says what it destroys: it is shown, and copying asks first. */
export function command(text, destroys = null) {
  const copy = () => copyText(text);
  const ask = () => confirm({ title: "This command destroys data", label: "Copy it anyway", text: [h("code", {}, text), " ", destroys], action: copy });
  return h("div", { class: destroys ? "command danger" : "command" }, h("code", {}, text),
    button("", destroys ? ask : copy, { icon: "copy", kind: "quiet small", title: "Copy the command" }), destroys && h("p", {}, destroys));
}

async function copyText(text) {
  await navigator.clipboard.writeText(text);
  toast("Copied to the clipboard");
}

/** A button that copies the address of this page: a link to what it shows. */
export const copyLink = () => button("Copy link", () => copyText(location.href), { icon: "link", kind: "small", title: "Copy a link to what this page shows" });
