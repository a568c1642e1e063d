// The frame of all pages: navigation, top bar, and the banner for a lost connection.

import { h, put } from "./dom.js";
import { button } from "./parts/basics.js";
import { icon, mark } from "./parts/icons.js";

const GROUPS = [
  ["Broker", [["", "Overview", "overview"], ["queues", "Queues", "queues"], ["exchanges", "Exchanges", "exchanges"],
    ["connections", "Connections", "connections"], ["transactions", "Transactions", "transactions"]]],
  ["History", [["trace", "Message timeline", "timeline"], ["time", "Time slider", "time"], ["journal", "Journal map", "journal"]]],
  ["Operation", [["cluster", "Cluster", "cluster"], ["users", "Users and rules", "users"],
    ["configuration", "Configuration", "configuration"], ["logs", "Logs", "logs"]]],
];

/** The frame for a session; *signOut* is called by its button. */
export function shell(session, signOut) {
  const links = new Map();
  const nav = h("nav", { class: "nav", id: "nav", "aria-label": "Pages" }, h("a", { class: "brand", href: "#/" }, mark(), "CairnMQ"),
    GROUPS.map(([title, items]) => h("div", { class: "nav-group" }, h("h2", {}, title), h("ul", {}, items.map(([name, label, symbol]) => {
      links.set(name, h("a", { class: "item", href: `#/${name}` }, icon(symbol), label));
      return h("li", {}, links.get(name));
    })))));
  const pulse = h("span", { class: "pulse", role: "img", "aria-label": "Connected" });
  const banner = h("div", { class: "banner", role: "alert", hidden: true });
  const main = h("main", { class: "main", id: "main", tabindex: -1 });
  const menu = button("", () => setOpen(!element.classList.contains("nav-open")), { icon: "menu", kind: "quiet menu-button", title: "Menu", "aria-expanded": "false", "aria-controls": "nav" });
  const broker = session.broker ?? {};
  const bar = h("header", { class: "bar" }, menu,
    h("div", { class: "place" }, pulse, h("strong", {}, String(broker.url ?? "Broker").replace(/^amqps?:\/\//, ""))),
    h("div", { class: "who" }, h("span", {}, "Signed in as"), h("b", {}, session.user || "anonymous"), schemeButton(),
      button("", signOut, { icon: "leave", kind: "quiet", title: "Sign out" })));
  const element = h("div", { class: "shell" }, nav, bar, h("div", {}, banner, main));

  function setOpen(isOpen) {
    element.classList.toggle("nav-open", isOpen);
    menu.setAttribute("aria-expanded", String(isOpen));
    if (isOpen) nav.querySelector("a.item").focus();
  }

  element.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && element.classList.contains("nav-open")) {
      setOpen(false);
      menu.focus();
    }
  });
  element.addEventListener("click", (event) => { if (!nav.contains(event.target) && !menu.contains(event.target)) setOpen(false); });

  return {
    element,
    show(path, content) {
      const current = path?.split("/")[1];
      for (const [name, one] of links) {
        if (name === current) one.setAttribute("aria-current", "page");
        else one.removeAttribute("aria-current");
      }
      setOpen(false);
      put(main, content);
    },
    focusHeading() { (main.querySelector("h1") ?? main).focus(); },
    banner(text) {
      banner.hidden = !text;
      if (text) put(banner, icon("warning"), text);
      pulse.classList.toggle("down", Boolean(text));
      pulse.setAttribute("aria-label", text ? "Not connected" : "Connected");
    },
  };
}

/** Switches between the dark and the light scheme, and remembers the choice. */
export function schemeButton() {
  const root = document.documentElement;
  const one = button("", () => {
    root.dataset.scheme = root.dataset.scheme === "dark" ? "light" : "dark";
    try { localStorage.setItem("cairnmq-scheme", root.dataset.scheme); } catch { /* the choice holds for this page */ }
    paint();
  }, { icon: "moon", kind: "quiet", title: "Use dark colors" });
  function paint() {
    const isDark = root.dataset.scheme === "dark";
    put(one, icon(isDark ? "sun" : "moon"));
    one.setAttribute("aria-label", isDark ? "Use light colors" : "Use dark colors");
    one.title = one.getAttribute("aria-label");
  }
  paint();
  return one;
}
