// Loads that replace each other: only the newest one is shown.

/**
 * A function that loads and shows: *load(signal)* fetches the data, *show(data)* or *fail(error)* receives the outcome, and *done()* is called after
 * it. A load that a newer one replaced, or whose page was left, is aborted and shows nothing. The end of the session is shown by the frame.
 */
export function latest(view, { load, show, fail, done = () => {} }) {
  let running = null;
  return async function reload() {
    running?.abort();
    const current = new AbortController();
    running = current;
    const stop = () => current.abort();
    view.signal.addEventListener("abort", stop, { once: true });
    try {
      const data = await load(current.signal);
      if (!current.signal.aborted) show(data);
    } catch (error) {
      if (!current.signal.aborted && error.status !== 401) fail(error);
    } finally {
      view.signal.removeEventListener("abort", stop);
      if (!current.signal.aborted) done();
    }
  };
}
