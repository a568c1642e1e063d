// A part of a page that loads its data: a skeleton first, then the content or the error, and a fresh content after changes.

import { h, keepingFocus, put } from "../dom.js";
import { failed, loading } from "./basics.js";

/**
 * *load(signal)* fetches the data; *paint(data)* returns a node; or, once, an object with `element` and `update(data)` for this and later data.
 * Later errors of the connection keep the content: the banner of the page reports them.
 */
export function region(view, { load, paint, lines }) {
  const element = h("div", {}, loading(lines));
  let shown = null;
  let running = null;

  async function reload() {
    running?.abort();
    const current = new AbortController();
    running = current;
    const stop = () => current.abort();
    view.signal.addEventListener("abort", stop, { once: true });
    try {
      const data = await load(current.signal);
      if (current.signal.aborted) return;
      if (shown?.update) {
        shown.update(data);
        return;
      }
      keepingFocus(() => {
        shown = paint(data);
        shown.update?.(data);
        put(element, shown.element ?? shown);
      });
    } catch (error) {
      if (current.signal.aborted || error.status === 401) return;
      if (shown && error.isUnreachable) return;
      shown = null;
      put(element, failed(error, reload));
    } finally {
      view.signal.removeEventListener("abort", stop);
    }
  }

  reload();
  view.onRefresh(reload);
  return { element, reload };
}
