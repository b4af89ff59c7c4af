// Elements, made so that whatever a model wrote can only become text.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(3)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

const el = (tag, attributes, ...children) =>
  fill(document.createElement(tag), attributes, children);

const draw = (tag, attributes, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

function section(id, title, lead, ...children) {
  return el("section", { id, "aria-labelledby": `${id}-title` },
    el("h2", { id: `${id}-title` }, title), lead && el("p", { class: "lead" }, lead), children);
}

// Shows items a piece at a time: `make` builds the element of an item.
function growing(container, items, make, piece) {
  let shown = 0;
  const more = el("button", { type: "button", class: "more" });
  const last = container.matches("ul") ? el("li", null, more) : more; // a list has only items
  function grow(focus) {
    const added = items.slice(shown, shown + piece).map(make);
    container.append(...added);
    shown += added.length;
    last.remove();
    if (shown < items.length) {
      more.textContent = `Show more (${whole(items.length - shown)} left)`;
      container.append(last);
    }
    if (focus && added.length) (added[0].querySelector("button, a, summary") || more).focus();
  }
  more.addEventListener("click", () => grow(true));
  container.replaceChildren();
  grow(false);
}
