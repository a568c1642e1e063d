// The color scheme, set before the first paint: the reader's choice, or else the system's. A classic script, because modules run later.
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => { try { return localStorage.getItem("cairnmq-scheme"); } catch { return null; } };
  const apply = () => { document.documentElement.dataset.scheme = chosen() ?? (dark.matches ? "dark" : "light"); };
  dark.addEventListener("change", apply);
  apply();
})();
