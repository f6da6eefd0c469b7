// The chosen theme is set before anything is drawn, so that nothing flashes.
{
  let chosen = "";
  try {
    chosen = localStorage.getItem("theme");
  } catch {
    // The browser stores nothing for this page.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  document.addEventListener("DOMContentLoaded", () =>
    document.getElementById("skip").addEventListener("click", (e) => {
      e.preventDefault();
      document.getElementById("main").focus();
    }),
  );
}
