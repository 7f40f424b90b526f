// Runs before the first paint: the theme and the language that the page opens in.
// Knows only the reader's own choices (kept by settings.js) and what the browser prefers.
(() => {
  const kept = (name) => {
    try {
      return localStorage.getItem(`qwenvl.${name}`);
    } catch {
      return null; // storage is switched off: the browser's preference it is
    }
  };
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const paint = () => {
    document.documentElement.dataset.theme = kept('theme') || (dark.matches ? 'dark' : 'light');
  };
  paint();
  dark.addEventListener('change', paint);
  const wanted = kept('language') || navigator.language || 'en';
  document.documentElement.lang = wanted.toLowerCase().startsWith('zh') ? 'zh-CN' : 'en';
})();
