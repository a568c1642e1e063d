// Short messages about an action that succeeded or failed.

import { h } from "../dom.js";
import { icon } from "./icons.js";

const SHOWN_MS = 6000;

export function toast(text, kind = "done") {
  const element = h("div", { class: "toast" }, icon(kind), h("span", {}, text));
  document.getElementById("toasts").append(element);
  setTimeout(() => element.remove(), SHOWN_MS);
}
