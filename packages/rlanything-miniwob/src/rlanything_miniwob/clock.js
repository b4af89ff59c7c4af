// Runs in every page before all else. Gives it a clock that only `page.js` moves, so that an episode
// does not depend on how busy the machine is.
(() => {
  const START = Date.UTC(2020, 0, 1, 12);
  const FRAME = 16;
  const nextFrame = window.requestAnimationFrame.bind(window); // of the machine's clock
  let now = 0;
  let number = 0;
  const timers = new Map();

  const add = (what, delay, repeats, rest) => {
    const wait = Math.max(Number(delay) || 0, repeats ? 1 : 0);
    timers.set(++number, { at: now + wait, every: repeats ? wait : null, what, rest });
    return number;
  };
  const remove = (id) => void timers.delete(id);
  window.setTimeout = (what, delay, ...rest) => add(what, delay, false, rest);
  window.setInterval = (what, delay, ...rest) => add(what, delay, true, rest);
  window.requestAnimationFrame = (what) => add(() => what(now), FRAME, false, []);
  window.clearTimeout = window.clearInterval = window.cancelAnimationFrame = remove;
  performance.now = () => now;
  const RealDate = Date;
  window.Date = new Proxy(RealDate, {
    construct: (type, given, target) =>
      Reflect.construct(type, given.length ? given : [START + now], target),
    apply: () => new RealDate(START + now).toString(),
    get: (type, name) => (name === "now" ? () => START + now : Reflect.get(type, name)),
  });

  const advance = (milliseconds) => {
    const end = now + milliseconds;
    for (;;) {
      let due = null;
      for (const [id, timer] of timers) {
        if (timer.at <= end && (due === null || timer.at < due.timer.at)) due = { id, timer };
      }
      if (due === null) break;
      now = Math.max(now, due.timer.at);
      if (due.timer.every === null) timers.delete(due.id);
      else due.timer.at += due.timer.every;
      if (typeof due.timer.what === "function") due.timer.what(...due.timer.rest);
    }
    now = end;
  };

  const restart = () => {
    timers.clear();
    now = 0;
  };
  const frame = () => new Promise(nextFrame);

  window.miniwob = { advance, restart, frame };
})();
