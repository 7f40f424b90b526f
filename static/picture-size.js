// The size a PNG or JPEG says it has, read from its first bytes, so that a 400-megapixel file is never decoded here.

const HEAD_BYTES = 256 * 1024;
const PNG = 0x89504e47;

/** `{ width, height }`, or null where the head does not tell. */
export async function statedSize(file) {
  const head = new DataView(await file.slice(0, HEAD_BYTES).arrayBuffer());
  if (head.byteLength < 24) return null;
  if (head.getUint32(0) === PNG) return { width: head.getUint32(16), height: head.getUint32(20) };
  return head.getUint16(0) === 0xffd8 ? jpegSize(head) : null;
}

// Walks the segments to the frame header (SOF0-SOF15; C4, C8 and CC are tables). ITU T.81, B.2.2.
function jpegSize(head) {
  let at = 2;
  while (at + 9 < head.byteLength && head.getUint8(at) === 0xff) {
    const marker = head.getUint8(at + 1);
    const frame = marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker);
    if (frame) return { width: head.getUint16(at + 7), height: head.getUint16(at + 5) };
    at += marker === 0xff ? 1 : 2 + head.getUint16(at + 2);
  }
  return null;
}
