"use strict";
// The page: its data put in place, its colours, and its print.
(function (poolscope) {
  const root = document.documentElement;
  const data = JSON.parse(document.getElementById("pageData").textContent);
  poolscope.colorway = data.colorway;
  poolscope.indexPairs(data.explorer);

  for (const [key, section] of Object.entries(data.sections)) {
    const host = document.getElementById(key);
    for (const figure of section.figures)
      poolscope.chart(host.querySelector(".figures"), figure, { page: `${data.title} ${key}` });
    for (const table of section.tables) poolscope.table(host.querySelector(".tables"), table, data.title);
  }
  if (data.explorer) poolscope.explorer(document.querySelector(".explorer-body"), data.explorer, data.title);

  // -- commands: copied, or selected where the browser refuses to
  for (const button of document.querySelectorAll(".copy")) {
    const command = button.parentElement.querySelector("code");
    button.hidden = false;
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(command.textContent);
        button.textContent = "Copied";
      } catch (error) {
        getSelection().selectAllChildren(command);
        button.textContent = "Selected: copy it";
      }
      setTimeout(() => (button.textContent = "Copy"), 4000);
    });
  }

  // -- explanations: a link to one, or to a heading in one, opens it; the browser goes there
  function unfold(target) {
    const explanation = target && target.closest(".explanation");
    if (explanation) explanation.open = true;
    return Boolean(explanation);
  }
  addEventListener("hashchange", () => unfold(document.querySelector(":target")));
  addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]'); // no change of the address if it is the same as before
    if (link) unfold(document.getElementById(link.getAttribute("href").slice(1)));
  });

  // -- colours: the system's, until the reader chooses
  const button = document.getElementById("pageTheme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  function label() {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", isDark() ? "Use light colours" : "Use dark colours");
  }
  function recolour() {
    label();
    poolscope.redraw();
  }
  label();
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try {
      localStorage.setItem("poolscope-theme", root.dataset.theme);
    } catch (error) {
      // no storage: the choice lasts as long as the page
    }
    recolour();
  });
  system.addEventListener("change", recolour);

  // -- print: light, everything open, figures as wide as A4 or Letter paper allows
  const PAPER = 660;
  const closed = new Set();
  addEventListener("beforeprint", () => {
    document.querySelectorAll("details:not([open], .explanation)").forEach((part) => {
      part.open = true;
      closed.add(part);
    });
    poolscope.unfoldTables(true);
    root.classList.add("printing");
    poolscope.redraw(PAPER);
  });
  addEventListener("afterprint", () => {
    closed.forEach((part) => {
      part.open = false;
    });
    closed.clear();
    poolscope.unfoldTables(false);
    root.classList.remove("printing");
    poolscope.redraw();
  });

  // -- figures one after the other, so that the first can be read while the last is drawn
  async function drawAll() {
    for (const chart of poolscope.charts) {
      chart.draw();
      await new Promise((done) => setTimeout(done, 0));
    }
    poolscope.followWidth();
    const target = document.querySelector(":target");
    if (unfold(target)) target.scrollIntoView(); // the figures have pushed it down
    root.dataset.ready = "true";
  }
  drawAll();
})(window.poolscope);
