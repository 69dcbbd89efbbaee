"use strict";
// The colours that the reader chose on an earlier visit, before anything is painted; without a choice, the system's.
try {
  const chosen = localStorage.getItem("poolscope-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch (error) {
  // A page from disk may have no storage: then the choice lasts as long as the page.
}
