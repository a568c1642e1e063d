// A table whose rows the server sorts, filters and pages. Its state is part of the address, so that it can be shared.

import { url } from "../api.js";
import { h, keepingFocus, put } from "../dom.js";
import { count } from "../format.js";
import { button, empty, failed, loading } from "./basics.js";
import { icon } from "./icons.js";
import { latest } from "./latest.js";

const SEARCH_DELAY_MS = 250;

/**
 * Options:
 * * `columns`: `key`, `label`, `render(item)`, and optionally `sort`, `kind` (end, fit, main-cell)
 * * `load(query, signal)`: the page of rows as the API returns it: `items`, `total`, `page`, `per_page`
 * * `rowKey(item)`: what identifies a row
 * * `sort`, `order`: the order at first; `search`: the text of the search field; `tools`: further elements beside it
 * * `bulk(items)`: adds check boxes, and returns the buttons for the selected items
 * * `csv`: the path of the API that has the rows as a CSV file
 * * `none`: an element for no rows at all
 */
export function table(view, options) {
  const { columns, load, rowKey, label, search, bulk: select, perPage = 50 } = options;
  const prefix = options.prefix ?? "";
  const state = {
    search: view.query[`${prefix}search`] ?? "", sort: view.query[`${prefix}sort`] ?? options.sort,
    order: view.query[`${prefix}order`] ?? options.order ?? "asc", page: Number(view.query[`${prefix}page`] ?? 1),
  };
  const selected = new Map();
  let rows = new Map();
  let items = [];

  const all = select && h("input", { type: "checkbox", "aria-label": "Select all on this page", onchange: () => mark(items, all.checked) });
  const heads = columns.map((column) => head(column));
  const body = h("tbody", { role: "rowgroup" });
  const element = h("table", { class: `table ${options.compact ? "compact" : ""}`, role: "table", "aria-label": label },
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, select && h("th", { class: "fit", role: "columnheader" }, all), heads)), body);
  const frame = h("div", { class: "table-frame", tabindex: -1 }, loading(6));
  const pager = h("div", { class: "pager" });
  const input = search && h("input", { class: "input", type: "search", placeholder: search, "aria-label": search, value: state.search, oninput: searchLater });
  const file = options.csv && h("a", { class: "button quiet", download: true, title: "Download the list as a CSV file" }, icon("download"), "CSV");
  const actions = h("div", { class: "end" }, file, options.tools);
  const tools = (search || file || options.tools) && h("div", { class: "table-tools" },
    search && h("div", { class: "search" }, icon("search"), input), actions);
  let timer = 0;

  function searchLater() {
    clearTimeout(timer);
    timer = setTimeout(() => change({ search: input.value.trim(), page: 1 }), SEARCH_DELAY_MS);
  }

  function head(column) {
    const kind = column.kind ?? "";
    if (!column.sort) return h("th", { class: kind, role: "columnheader", scope: "col" }, column.label || h("span", { class: "visually-hidden" }, column.name));
    const sorted = () => state.sort === column.key;
    return h("th", { class: kind, role: "columnheader", scope: "col", "aria-sort": sorted() ? `${state.order}ending` : null, data: { key: column.key } },
      h("button", { type: "button", onclick: () => change({
        sort: column.key, page: 1, order: sorted() ? (state.order === "asc" ? "desc" : "asc") : kind === "end" ? "desc" : "asc",
      }) }, column.label, icon("up")));
  }

  function change(changes) {
    Object.assign(state, changes);
    selected.clear();
    const isFirst = state.sort === options.sort && state.order === (options.order ?? "asc");
    view.replaceQuery({ [`${prefix}search`]: state.search, [`${prefix}sort`]: isFirst ? "" : state.sort,
      [`${prefix}order`]: isFirst ? "" : state.order, [`${prefix}page`]: state.page > 1 ? state.page : "" });
    for (const one of heads) {
      if (!one.dataset.key) continue;
      if (one.dataset.key === state.sort) one.setAttribute("aria-sort", `${state.order}ending`);
      else one.removeAttribute("aria-sort");
    }
    reload();
  }

  const replace = latest(view, {
    load(signal) {
      const { search: text, sort, order, page } = state;
      return load({ search: text, sort, order, page, per_page: perPage, ...options.arguments?.() }, signal);
    },
    show: paint,
    fail(error) {
      if (rows.size && error.isUnreachable) return;
      rows = new Map();
      put(frame, failed(error, reload));
      put(pager);
    },
    done() { frame.removeAttribute("aria-busy"); },
  });

  function reload() {
    frame.setAttribute("aria-busy", "true");
    return replace();
  }

  function paint(answer) {
    items = answer.items;
    file?.setAttribute("href", url(options.csv, { search: state.search, sort: state.sort, order: state.order, format: "csv" }));
    keepingFocus(() => {
      const old = rows;
      rows = new Map(items.map((item) => {
        const key = String(rowKey(item));
        const content = JSON.stringify(item);
        const known = old.get(key);
        return [key, known?.content === content ? known : { content, item, element: row(item, key) }];
      }));
      const wanted = [...rows.values()].map((one) => one.element);
      if (wanted.length !== body.children.length || wanted.some((one, number) => body.children[number] !== one)) body.replaceChildren(...wanted);
      for (const key of selected.keys()) if (!rows.has(key)) selected.delete(key);
      if (!items.length) put(frame, state.search ? empty("Nothing found", `Nothing matches “${state.search}”.`) : options.none?.() ?? empty("Nothing here yet"));
      else if (element.parentNode !== frame) put(frame, element);
    });
    paintPager(answer);
    changedSelection();
    options.painted?.(answer);
  }

  function row(item, key) {
    const box = select && h("input", { type: "checkbox", "aria-label": `Select ${key}`, checked: selected.has(key), data: { focus: `select ${key}` },
      onchange: () => mark([item], box.checked) });
    return h("tr", { role: "row", "aria-selected": select ? String(selected.has(key)) : null }, select && h("td", { class: "fit", role: "cell" }, box),
      columns.map((column) => h("td", { class: column.kind ?? "", role: "cell", data: { label: column.label ?? "" } }, column.render(item))));
  }

  function mark(some, isSelected) {
    for (const item of some) {
      const key = String(rowKey(item));
      if (isSelected) selected.set(key, item);
      else selected.delete(key);
    }
    changedSelection();
  }

  function changedSelection() {
    if (!select) return;
    for (const [key, one] of rows) {
      one.element.setAttribute("aria-selected", String(selected.has(key)));
      one.element.querySelector("input").checked = selected.has(key);
    }
    all.checked = rows.size > 0 && selected.size === rows.size;
    all.indeterminate = selected.size > 0 && selected.size < rows.size;
    const some = [...selected.values()];
    put(actions, some.length ? [h("span", { class: "muted", role: "status" }, `${count(some.length)} selected`), select(some)] : [file, options.tools]);
  }

  function paintPager({ total, page = 1, per_page: size = perPage }) {
    const pages = Math.max(1, Math.ceil(total / size));
    const first = total ? (page - 1) * size + 1 : 0;
    const step = (name, number, possible) => button("", () => change({ page: number }), { icon: name, kind: "small quiet", disabled: !possible,
      title: name === "left" ? "Previous page" : "Next page", data: { focus: `${prefix}page ${name}` } });
    pager.hidden = total === 0 && !state.search;
    keepingFocus(() => put(pager, h("span", { role: "status" }, total ? `${count(first)}–${count(Math.min(total, first + size - 1))} of ${count(total)}` : "None"),
      pages > 1 && h("div", { class: "row" }, step("left", page - 1, page > 1), h("span", {}, `Page ${page} of ${count(pages)}`), step("right", page + 1, page < pages))));
  }

  reload();
  view.onRefresh(reload);
  return { element: h("div", {}, tools, frame, pager), reload, clearSelection() { selected.clear(); changedSelection(); } };
}

/** A load function for rows that the server returns all at once: it sorts, filters and pages them here. */
export function local(fetchAll) {
  return async ({ search, sort, order, page, per_page: size }, signal) => {
    const answer = await fetchAll(signal);
    const wanted = (search ?? "").toLowerCase();
    let items = (answer.items ?? answer).filter((item) => !wanted || JSON.stringify(item).toLowerCase().includes(wanted));
    if (sort) items = items.toSorted((a, b) => compare(a[sort], b[sort]) * (order === "desc" ? -1 : 1));
    return { ...answer, items: items.slice((page - 1) * size, page * size), total: items.length, page, per_page: size };
  };
}

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a ?? "").localeCompare(String(b ?? ""), "en", { numeric: true });
}
