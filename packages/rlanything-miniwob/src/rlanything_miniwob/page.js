// Runs in every page before its own scripts and after `clock.js`: reads it, finds its elements, and
// begins its episodes so that nothing is left of those before.
(() => {
  const clock = window.miniwob;
  const SCROLL_FRAMES = 3;

  // Which elements wait for a click, so that those are listed that say nothing.
  const listening = new WeakSet();
  const CLICKS = new Set(["click", "mousedown", "mouseup"]);
  const addEventListener = EventTarget.prototype.addEventListener;
  EventTarget.prototype.addEventListener = function (type, ...rest) {
    if (CLICKS.has(type) && this instanceof Element) listening.add(this);
    return addEventListener.call(this, type, ...rest);
  };

  // No agent can press the right button. With it `environment` clicks once before an episode begins:
  // keys then scroll the page and not what was clicked last, and no page hears of it.
  for (const type of ["pointerdown", "mousedown", "pointerup", "mouseup", "auxclick", "contextmenu"]) {
    const swallow = (event) => {
      if (event.button !== 2) return;
      event.stopImmediatePropagation();
      if (type === "contextmenu") event.preventDefault();
    };
    addEventListener.call(window, type, swallow, true);
  }

  const LEFT_OUT = new Set(["query", "reward-display", "sync-task-cover", "click-canvas"]);
  const INPUT_ROLES = { checkbox: "checkbox", radio: "radio", range: "slider" };
  const BUTTONS = new Set(["button", "submit", "reset"]);
  const SHAPES = new Set(["circle", "ellipse", "line", "path", "polygon", "rect", "text"]);
  const SIZED = new Set(["circle", "ellipse", "polygon", "rect", "text"]);
  const CHOSEN = ".ui-selected, .ui-state-active, .selected, .active";
  const SILENT = new Set(["SCRIPT", "STYLE", "BR", "HR", "OPTION", "DEFS"]);
  let elements = [];

  const tidy = (text) => text.replace(/\s+/g, " ").trim();
  const visible = (element) => {
    const box = element.getBoundingClientRect();
    const flat = box.width === 0 || box.height === 0;
    if (flat && element instanceof HTMLElement && !tidy(element.textContent)) return false;
    if (box.width === 0 && box.height === 0) return false;
    const style = getComputedStyle(element);
    if (style.visibility !== "visible" || style.display === "none" || style.opacity === "0") {
      return false;
    }
    // Nor is what is kept in a box too small to show it, for programs that read pages aloud.
    for (let each = element; each instanceof HTMLElement; each = each.parentElement) {
      const small = each.clientWidth <= 1 || each.clientHeight <= 1;
      if (small && getComputedStyle(each).overflowX === "hidden") return false;
    }
    return true;
  };

  const roleOf = (element) => {
    const tag = element.tagName.toLowerCase();
    if (tag === "input") {
      const type = element.type;
      return BUTTONS.has(type) ? "button" : INPUT_ROLES[type] || "textbox";
    }
    if (tag === "textarea" || tag === "button" || tag === "select") return tag;
    if (tag === "a" || element.classList.contains("alink")) return "link";
    if (element instanceof SVGElement) return tag;
    if (/^h[1-6]$/.test(tag)) return "heading";
    if (tag === "img") return "image";
    return "text";
  };

  const ownText = (element) =>
    tidy([...element.childNodes].filter((n) => n instanceof Text).map((n) => n.data).join(" "));

  const labelOf = (element) => {
    const label = element.closest("label") || (element.labels && element.labels[0]);
    if (label) return tidy(label.textContent);
    const next = element.nextSibling;
    return next instanceof Text ? tidy(next.data) : "";
  };

  const hex = (color) => {
    const parts = color.match(/[\d.]+/g);
    if (!parts || (parts.length === 4 && parts[3] === "0")) return "";
    const two = (part) => Math.round(Number(part)).toString(16).padStart(2, "0");
    return "#" + parts.slice(0, 3).map(two).join("");
  };

  // What stands for an element that has no text: its color, then the words of its class or id.
  const lookOf = (element) => {
    const style = getComputedStyle(element);
    const fill = element instanceof SVGElement ? style.fill : style.backgroundColor;
    const classes = [element, ...element.children]
      .flatMap((each) => (each.getAttribute("class") || "").split(/\s+/))
      .filter((word) => word && !/^(selected|active|ui-(?!icon-|spinner-[ud]).*)$/.test(word));
    const name = element.getAttribute("alt") || element.title || classes.join(" ") || element.id;
    const color = classes.some((word) => /icon/.test(word)) ? "" : hex(fill);
    return tidy(`${element.getAttribute("fill") || color} ${name}`);
  };

  // Also of what alone fills something chosen, such as the link in a tab.
  const chosen = (element) => {
    const parent = element.parentElement;
    return element.matches(CHOSEN) || (parent.matches(CHOSEN) && parent.childNodes.length === 1);
  };

  // Drawings are told apart by their color and size.
  const drawn = (element) => {
    if (!SIZED.has(element.tagName)) return [];
    const text = element.tagName === "text";
    const color = text && element.getAttribute("fill");
    const size = text ? parseFloat(getComputedStyle(element).fontSize) : element.getBBox().height;
    return [...(color && /^\w+$/.test(color) ? [color] : []), `${Math.round(size)}px`];
  };

  const describe = (element, text) => {
    const role = roleOf(element);
    const found = { role, text, value: null, state: drawn(element) };
    if (role === "checkbox" || role === "radio") {
      found.text = labelOf(element);
      if (element.checked) found.state.push("checked");
    } else if (role === "textbox" || role === "textarea" || role === "slider") {
      const label = element.labels && element.labels[0];
      found.text = tidy((label && label.textContent) || element.placeholder || "");
      found.value = element.value;
    } else if (role === "button" && element.tagName === "INPUT") {
      found.text = tidy(element.value);
    } else if (role === "select") {
      found.text = "";
      found.value = [...element.selectedOptions].map((option) => tidy(option.text)).join(", ");
      found.options = [...element.options].map((option) => tidy(option.text));
    }
    if (!found.text && found.value === null) found.text = lookOf(element);
    if (element.disabled) found.state.push("disabled");
    if (document.activeElement === element) found.state.push("focused");
    if (chosen(element)) found.state.push("selected");
    return found;
  };

  const CONTROLS = "input, textarea, select, button, a";
  const plain = (element) => [...element.children].every((child) => SILENT.has(child.tagName));

  // Whether an element without text is worth a line of its own.
  const speaks = (element) =>
    SHAPES.has(element.tagName.toLowerCase()) ||
    element.tagName === "IMG" ||
    (plain(element) &&
      (listening.has(element) ||
        element.onclick !== null ||
        element.tabIndex >= 0 ||
        getComputedStyle(element).cursor === "pointer" ||
        /icon|color|star|trash|reply|forward/.test(element.getAttribute("class") || "")));

  const walk = (element, list) => {
    if (LEFT_OUT.has(element.id) || SILENT.has(element.tagName)) return;
    if (element instanceof SVGElement ? element.tagName === "defs" : !(element instanceof HTMLElement)) {
      return;
    }
    const style = getComputedStyle(element);
    if (style.display === "none") return;
    const control = element.matches(CONTROLS);
    const text = ownText(element);
    if (control || plain(element)) {
      const said = control ? tidy(element.textContent) : text;
      if ((control || said || speaks(element)) && visible(element)) {
        list.push([element, describe(element, said)]);
      }
      return;
    }
    // Text between elements keeps its place; a label's belongs to what it labels.
    const labels = element.tagName === "LABEL" && element.querySelector("input");
    for (const child of element.childNodes) {
      if (child instanceof Element) walk(child, list);
      else if (child instanceof Text && tidy(child.data) && !labels && visible(element)) {
        const before = child.previousElementSibling;
        const label = before && before.matches("input[type=checkbox], input[type=radio]");
        const state = chosen(element) ? ["selected"] : [];
        if (!label) list.push([element, { role: "text", text: tidy(child.data), value: null, state }]);
      }
    }
  };

  const observe = () => {
    const list = [];
    walk(document.body, list);
    elements = list.map(([element]) => element);
    return {
      elements: list.map(([, described]) => described),
      done: WOB_DONE_GLOBAL,
      reward: WOB_RAW_REWARD_GLOBAL,
    };
  };

  // A point of the element that nothing covers, in pixels of the viewport; null: there is none.
  const point = (index) => {
    const element = elements[index];
    if (!element || !element.isConnected) return null;
    const places = [];
    for (let each = element; each; each = each.parentElement) {
      places.push([each, each.scrollLeft, each.scrollTop]);
    }
    element.scrollIntoView({ block: "nearest", inline: "nearest" });
    const hits = (x, y) => {
      const top = document.elementFromPoint(x, y);
      return top !== null && (element.contains(top) || (top.contains(element) && top.tagName === "LABEL"));
    };
    for (const box of element.getClientRects()) {
      for (const down of [0.5, 0.25, 0.75, 0.1, 0.9]) {
        for (const right of [0.5, 0.25, 0.75, 0.1, 0.9]) {
          const x = box.left + right * box.width;
          const y = box.top + down * box.height;
          if (hits(x, y)) return [x, y];
        }
      }
    }
    for (const [each, left, top] of places) each.scrollTo(left, top);
    return null;
  };

  // The number of the element that a click at a point falls on; 0: on none.
  const at = (x, y) => {
    for (let each = document.elementFromPoint(x, y); each; each = each.parentElement) {
      const label = each.tagName === "LABEL" ? each.control : null;
      const index = elements.indexOf(elements.includes(each) || !label ? each : label);
      if (index >= 0) return index + 1;
    }
    return 0;
  };

  // Where every element lies, and a point of it that nothing covers (null: there is none), in pixels.
  const places = () =>
    elements.map((element, index) => {
      const box = element.getBoundingClientRect();
      return [point(index), [box.left, box.top, box.right, box.bottom]];
    });

  // How a field takes what is typed: "list" for one that goes to the option so named, "parts" for one
  // that is filled in part by part, as dates are; then it is empty and at its first part.
  const PARTS = new Set(["date", "datetime-local", "month", "time", "week"]);
  const typing = (index) => {
    const field = elements[index];
    if (field instanceof HTMLSelectElement) return "list";
    if (!PARTS.has(field.type)) return "text";
    field.value = "";
    field.blur();
    field.focus();
    return "parts";
  };

  // How far down an option stands in a list, and whether several can be chosen; null: it does not.
  const choose = (index, text) => {
    const list = elements[index];
    if (!(list instanceof HTMLSelectElement)) return null;
    const at = [...list.options].findIndex((each) => tidy(each.text) === text);
    if (at < 0) return null;
    list.focus();
    return { at, several: list.multiple };
  };

  // What a page asks for may hold an icon or a color instead of a word.
  const words = (node) => {
    if (node instanceof Text) return node.data;
    if (!(node instanceof Element) || SILENT.has(node.tagName)) return "";
    if (plain(node) && !tidy(node.textContent)) return lookOf(node);
    return [...node.childNodes].map(words).join("");
  };
  const utterance = () => {
    const said = core.getUtterance();
    const text = tidy(typeof said === "string" ? said : said.utterance);
    const query = document.getElementById("query");
    return text === tidy(query.textContent) ? tidy(words(query)) : text;
  };

  // The page's own values of what an episode has changed, to be put back.
  const own = new Map();
  let ranges = {};
  let randi = null;

  const change = (parameters) => {
    for (const [name, value] of own) window[name] = value;
    own.clear();
    for (const [name, value] of Object.entries(parameters.variables || {})) {
      if (!(name in window)) throw new Error(`the page has no ${name}`);
      own.set(name, window[name]);
      window[name] = value;
    }
    ranges = parameters.ranges || {};
    if (randi === null) {
      randi = core.randi;
      core.randi = (least, end) => randi(...(ranges[`${least},${end}`] || [least, end]));
    }
  };

  // Pictures that style sheets put into elements give these their size, but are loaded only when
  // first needed, and late for who clicks. A page that loads waits for those that it knows of.
  const pictures = [];
  document.addEventListener("DOMContentLoaded", () => {
    for (const rule of [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules])) {
      const address = rule.style && rule.style.content.match(/url\("(.*?)"\)/);
      if (!address) continue;
      const picture = new Image();
      picture.src = new URL(address[1], rule.parentStyleSheet.href || location.href);
      pictures.push(picture);
    }
  });

  // Not every page takes back all that was done to it. Whether one did is seen from an episode that
  // should look the same each time; a page that not even this one leaves as it was serves once.
  const ONCE = "serves once";
  // These keep in variables what no look at them shows.
  const KEEPERS = /\/(chase-circle|form-sequence-3|simon-says)\.html$/;
  let looksAtFirst = null;
  let begun = false;
  const probe = async () => {
    await start("probe", "train", {});
    return JSON.stringify([
      observe().elements,
      elements.map((element) => element.getBoundingClientRect()),
      document.querySelectorAll("*").length,
    ]);
  };
  let touched = true;
  const soiled = async () => {
    if (sessionStorage.getItem(ONCE) || KEEPERS.test(location.pathname)) return begun;
    if (!touched) return false;
    if (looksAtFirst !== null) return (await probe()) !== looksAtFirst;
    looksAtFirst = await probe();
    if ((await probe()) === looksAtFirst) return false;
    sessionStorage.setItem(ONCE, "yes");
    return true;
  };

  // Null: the page has to be loaded anew.
  const reset = async (seed, mode, parameters) => {
    if (await soiled()) return null;
    begun = true;
    touched = false;
    await start(seed, mode, parameters);
    return { utterance: utterance(), ...observe() };
  };

  // The page counts its episodes and shows their rewards beside them, where they can be copied.
  const forgetScores = () => {
    WOB_EPISODE_ID = 0;
    core.wob_scores = [];
    core.EP_TIMER ??= 0; // as if an episode had to be ended, so that what is shown is the same
    core.endEpisode(0);
  };

  const unscroll = () => {
    for (const element of document.querySelectorAll("*")) {
      if (element.scrollTop || element.scrollLeft) element.scrollTo(0, 0);
    }
  };

  // Tab goes on from what had the focus last, or was clicked last: make that the page itself.
  const unfocus = () => {
    document.body.tabIndex = -1;
    document.body.focus({ preventScroll: true });
    document.body.blur();
    document.body.removeAttribute("tabindex");
  };

  const start = async (seed, mode, parameters) => {
    clock.restart();
    core.EPISODE_MAX_TIME = 1e9;
    forgetScores();
    change(parameters);
    core.setDataMode(mode);
    if (window.jQuery) jQuery.fx.off = true;
    unfocus();
    unscroll();
    if (location.href.includes("#")) history.replaceState(null, "", location.pathname);
    Math.seedrandom(String(seed));
    core.startEpisodeReal();
    clock.advance(1000);
    const late = [...document.images].filter((image) => !image.complete);
    const arrival = (image) => new Promise((go) => (image.onload = image.onerror = go));
    await Promise.all(late.map(arrival));
  };

  // What was disabled or hidden loses the focus when the next frame is drawn: do not wait for that.
  const dropLostFocus = () => {
    const focus = document.activeElement;
    if (focus === null) return;
    if (focus.disabled || !focus.checkVisibility({ visibilityProperty: true })) focus.blur();
  };
  // What a wheel scrolls, and a list to what is chosen in it, moves with the next real frames.
  const settle = async (milliseconds, wheel) => {
    // Another document, in which nobody began: what it shows, and its reward, are not the episode's.
    if (!begun) throw new Error("the page of the episode was left");
    const list = document.activeElement;
    if (wheel || (list instanceof HTMLSelectElement && (list.multiple || list.size > 1))) {
      for (let frame = 0; frame < SCROLL_FRAMES; frame++) await clock.frame();
    }
    dropLostFocus();
    clock.advance(milliseconds);
    dropLostFocus();
    return observe();
  };
  const touching = (work) => (...given) => {
    touched = true;
    return work(...given);
  };

  window.miniwob = {
    reset,
    typing: touching(typing),
    count: () => elements.length,
    point: touching(point),
    places: touching(places),
    at,
    choose: touching(choose),
    settle: touching(settle),
  };
})();
