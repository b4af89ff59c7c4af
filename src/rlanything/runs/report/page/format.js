// Numbers as people read them.

const percent = (share) =>
  share === null || share === undefined ? "–" : `${(share * 100).toFixed(1)}%`;

const signed = (value, digits) =>
  `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(digits === undefined ? 1 : digits)}`;

const level = (interval) => interval === null ? "not measured"
  : `${percent(interval.estimate)} [${(interval.low * 100).toFixed(1)}, ${(interval.high * 100).toFixed(1)}]`;

const points = (interval) =>
  `${signed(interval.estimate * 100)} points [${signed(interval.low * 100)}, ${signed(interval.high * 100)}]`;

const numbers = new Intl.NumberFormat("en"); // made once: it costs more than what it writes
const whole = (count) => numbers.format(count);

function short(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(1);
  if (Number.isInteger(value)) return whole(value);
  return String(Number(value.toPrecision(size >= 100 ? 4 : 3)));
}

function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0 s";
  if (value >= 3600) return `${(value / 3600).toFixed(1)} h`;
  if (value >= 120) return `${(value / 60).toFixed(1)} min`;
  return `${value.toFixed(value >= 10 ? 0 : 1)} s`;
}

const counted = (count, one, many) => `${whole(count)} ${count === 1 ? one : many || `${one}s`}`;

function spoken(names) {
  if (names.length < 2) return names.join("");
  return `${names.slice(0, -1).join(", ")} and ${names[names.length - 1]}`;
}

const when = (text) => text ? text.replace("T", " ").replace(/(:\d\d)(\+00:00|Z)?$/, "$1 UTC") : "";

// A metric's quantity without its room: `judge/p_plus` is `p plus`.
const quantity = (name) => name.split("/").slice(1).join(" · ").replaceAll("_", " ");
