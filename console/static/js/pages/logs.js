// The tail of the broker's log.

import { h, put } from "../dom.js";
import { exact } from "../format.js";
import { button, empty, failed, loading, segments } from "../parts/basics.js";
import { icon } from "../parts/icons.js";
import { page } from "./page.js";

const KEPT = 1000;
const LEVELS = [["", "All"], ["warning", "Warnings"], ["error", "Errors"]];
const RANK = { debug: 0, info: 1, warning: 2, warn: 2, error: 3, critical: 4 };

export function logsPage(view) {
  let items = [];
  let level = "";
  let follows = true;
  const log = h("div", { class: "log", role: "log", tabindex: 0, "aria-label": "Log" }, loading(10));
  const input = h("input", { class: "input", type: "search", placeholder: "Filter lines", "aria-label": "Filter lines", oninput: paint });
  const follow = button("Follow", () => { follows = !follows; follow.setAttribute("aria-pressed", String(follows)); if (follows) toEnd(); }, { "aria-pressed": "true" });
  const toEnd = () => { log.scrollTop = log.scrollHeight; };

  function paint() {
    const wanted = input.value.trim().toLowerCase();
    const shown = items.filter((one) => rank(one) >= (RANK[level] ?? 0) && (!wanted || `${one.event ?? ""} ${one.text}`.toLowerCase().includes(wanted)));
    put(log, shown.length ? shown.map(line) : empty("No lines", items.length ? "No line matches the filter." : "The broker has not logged anything yet."));
    if (follows) toEnd();
  }

  async function load() {
    try {
      const answer = await view.api.get("/logs", {}, view.signal);
      items = answer.items.slice(-KEPT);
      paint();
    } catch (error) {
      if (!view.signal.aborted && error.status !== 401 && !(items.length && error.isUnreachable)) put(log, failed(error, load));
    }
  }

  view.on("log", (data) => {
    const added = (Array.isArray(data) ? data : data.items ?? [data]).filter((one) => !items.some((known) => known.id !== undefined && known.id === one.id));
    items = [...items, ...added].slice(-KEPT);
    paint();
  });
  load();
  view.onRefresh(load);
  return page("Logs", { lead: "Log records of the broker, the newest last." }, h("section", { class: "panel", "aria-label": "Log" },
    h("div", { class: "table-tools" }, h("div", { class: "search" }, icon("search"), input), h("div", { class: "end" },
      segments("Level", LEVELS, level, (value) => { level = value; paint(); }), follow)), log));
}

const rank = (one) => RANK[String(one.level).toLowerCase()] ?? 1;

function line(one) {
  const level = String(one.level ?? "info").toLowerCase();
  return h("div", { class: `log-line ${level === "warn" ? "warning" : level}` }, h("time", {}, exact(one.time)), h("span", { class: "level" }, level), h("span", { class: "text" }, one.event && h("b", {}, one.event, " "), one.text));
}
