// The compressed parts of the page: inflated when somebody looks, and the latest kept.

const KEPT = 24;
const inflated = new Map();

function bytes(base64) {
  const text = atob(base64);
  const found = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) found[i] = text.charCodeAt(i);
  return found;
}

async function chunk(number) {
  if (!inflated.has(number)) {
    const packed = bytes(document.getElementById(`chunk-${number}`).textContent);
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    inflated.set(number, new Response(stream).json());
    if (inflated.size > KEPT) inflated.delete(inflated.keys().next().value);
  }
  return inflated.get(number);
}

// A data address, or null where the image is not in the page.
function image(name) {
  const found = document.querySelector(`script[data-image="${CSS.escape(name)}"]`);
  return found ? `data:image/png;base64,${found.textContent}` : null;
}
