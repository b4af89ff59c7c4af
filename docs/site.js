// What the theme leaves out for keyboards and screen readers.
document$.subscribe(() =>
  setTimeout(() => {
    for (const wide of document.querySelectorAll(".md-typeset__scrollwrap")) wide.tabIndex = 0;
    for (const nav of document.querySelectorAll("nav[aria-labelledby]")) {
      const label = document.getElementById(nav.getAttribute("aria-labelledby"));
      nav.removeAttribute("aria-labelledby");
      nav.setAttribute("aria-label", label.textContent.trim());
    }
    for (const [i, nav] of document.querySelectorAll(".md-code__nav").entries())
      nav.setAttribute("aria-label", `Code ${i + 1}`);
  }),
);
