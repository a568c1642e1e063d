// A button that opens a list of actions, for rows that would otherwise have a button for each.

import { h } from "../dom.js";
import { button } from "./basics.js";

/** *label* names the button; *items*: pairs of text and action, and `danger` for those that destroy. *focus* identifies the button after a refresh. */
export function menu(label, items, focus) {
  const entries = items.map(([text, action, kind = ""]) => h("button", { type: "button", role: "menuitem", class: `menu-item ${kind}`, tabindex: -1,
    onclick: () => { list.hidePopover(); action(); } }, text));
  const list = h("div", { class: "menu", popover: "auto", role: "menu", "aria-label": label, onkeydown: move }, entries);
  const opener = button("", () => list.togglePopover(), { icon: "more", kind: "quiet small", title: label, "aria-haspopup": "menu", "aria-expanded": "false", data: { focus } });

  list.addEventListener("toggle", (event) => {
    const isOpen = event.newState === "open";
    opener.setAttribute("aria-expanded", String(isOpen));
    if (!isOpen) return;
    const place = opener.getBoundingClientRect();
    const below = place.bottom + 4;
    list.style.setProperty("left", `${Math.max(8, Math.min(place.right, innerWidth - 8) - list.offsetWidth)}px`);
    list.style.setProperty("top", `${below + list.offsetHeight > innerHeight ? place.top - list.offsetHeight - 4 : below}px`);
    entries[0].focus();
  });

  function move(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    entries.at((entries.indexOf(document.activeElement) + step) % entries.length).focus();
  }

  return h("div", { class: "menu-place" }, opener, list);
}
