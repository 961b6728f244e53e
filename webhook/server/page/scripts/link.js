// A link holds the input in its fragment, which browsers do not send to servers. It never holds the
// token.
const LINK_PREFIX = "#v1=";
const MAX_LINK_CHARACTERS = 32 * 1024;
const MAX_INPUT_BYTES = 4 * 1024 * 1024;
// A small link can hold thousands, whose editors would block the browser.
const MAX_LINK_POLICIES = 200;

async function encodeInput(input) {
  const stream = new Blob([JSON.stringify(input)]).stream();
  const packed = stream.pipeThrough(new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(packed).arrayBuffer());
  const text = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

async function decodeInput(text) {
  if (text.length > MAX_LINK_CHARACTERS) throw new Error("it is longer than 32 KiB");
  const packed = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  const bytes = Uint8Array.from(packed, (character) => character.charCodeAt(0));
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw")).getReader();
  const decoder = new TextDecoder();
  let json = "";
  for (let length = 0; ;) {
    const { done, value } = await reader.read();
    if (done) break;
    length += value.length;
    // A small link can hold a text of any length.
    if (length > MAX_INPUT_BYTES) throw new Error("its text is longer than 4 MiB");
    json += decoder.decode(value, { stream: true });
  }
  const input = JSON.parse(json + decoder.decode());
  const isText = (value) => typeof value === "string";
  const texts = ["workload", ...FIELDS].map((key) => input?.[key]);
  const { policies: edited } = input ?? {};
  if (!texts.every(isText) || !Array.isArray(edited)
      || !edited.every((policy) => isText(policy?.name) && isText(policy?.text))) {
    throw new Error("it holds no input of this page");
  }
  if (edited.length > MAX_LINK_POLICIES) throw new Error(`it holds more than ${MAX_LINK_POLICIES} policies`);
  return input;
}

async function copyLink() {
  const input = currentInput();
  const fragment = LINK_PREFIX + (await encodeInput(input));
  const link = new URL(fragment, location.href).href;
  $("link-part").hidden = false;
  $("link").hidden = true;
  if (input.policies.length > MAX_LINK_POLICIES) {
    $("link-note").textContent = `A link holds up to ${MAX_LINK_POLICIES} edited policies.`;
    return;
  }
  if (link.length > MAX_LINK_CHARACTERS) {
    const length = Math.ceil(link.length / 1024);
    $("link-note").textContent = `This input is too long for a link: ${length} KiB. A link holds up to 32 KiB.`;
    return;
  }
  try {
    await navigator.clipboard.writeText(link);
    $("link-note").textContent = "Copied. The link holds this input, but no token.";
  } catch {
    $("link").hidden = false;
    $("link").value = link;
    $("link").select();
    $("link-note").textContent = "Copy this link. It holds this input, but no token.";
  }
}

async function openLink() {
  if (!location.hash) return showExample(DATA.examples[0], { atOpening: true });
  let input;
  try {
    if (!location.hash.startsWith(LINK_PREFIX)) throw new Error("another release may have made it");
    input = await decodeInput(location.hash.slice(LINK_PREFIX.length));
  } catch (error) {
    showError(makeError("This link cannot be read", error.message));
    return;
  }
  showInput(input);
}
