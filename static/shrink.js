// From a reader's file to what is worth sending: upright and no larger than the model will look at.
// What the browser cannot decode goes out as it is; the server decides and explains.

import { statedSize } from './picture-size.js';

// the limits of qwenvl/images.py: longest side, and most pixels in all
const LIMITS = { fast: [640, 640 * 640], balanced: [1024, 1024 * 1024], fine: [1536, 1536 * 1024] };
const AS_IS_BYTES = 2_000_000;
const PNG_BYTES = 1_200_000;
const JPEG_QUALITY = 0.93;
const UNDERSTOOD = ['image/png', 'image/jpeg', 'image/webp', 'image/gif'];

/** Whether `detail` asks for more than `other` does. */
export const isFiner = (detail, other) => LIMITS[detail][0] > LIMITS[other][0];

/** The size that a picture is shrunk to. */
export function fittedSize(width, height, detail) {
  const [longSide, pixels] = LIMITS[detail];
  const scale = Math.min(1, longSide / Math.max(width, height), Math.sqrt(pixels / (width * height)));
  return { width: Math.max(1, Math.round(width * scale)), height: Math.max(1, Math.round(height * scale)) };
}

/**
 * A file that says it has more than `maxPixels` is not opened here; the server has an error for it. Resolves to
 * `{ blob, width, height, sentWidth, sentHeight, shrunk, decoded }`, with the sizes of the upright picture or 0.
 */
export async function shrink(file, detail, maxPixels) {
  const stated = await statedSize(file).catch(() => null);
  if (stated && stated.width * stated.height > maxPixels) return asIs(file, stated, false);
  let bitmap;
  try {
    bitmap = await createImageBitmap(file, { imageOrientation: 'from-image' });
  } catch {
    return asIs(file, stated, false);
  }
  try {
    return await fitted(file, bitmap, fittedSize(bitmap.width, bitmap.height, detail));
  } finally {
    bitmap.close();
  }
}

async function fitted(file, bitmap, size) {
  const { width, height } = bitmap;
  const shrunk = size.width < width || size.height < height;
  const good = !shrunk && UNDERSTOOD.includes(file.type) && file.size <= AS_IS_BYTES;
  if (good) return asIs(file, bitmap, true);
  const canvas = document.createElement('canvas');
  Object.assign(canvas, size);
  const pen = canvas.getContext('2d');
  pen.imageSmoothingQuality = 'high';
  pen.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  const blob = await encoded(canvas, pen, file.type === 'image/jpeg');
  if (!blob) return asIs(file, bitmap, true);
  const sent = { sentWidth: canvas.width, sentHeight: canvas.height };
  return { blob, width, height, ...sent, shrunk, decoded: true };
}

// PNG keeps the edges of letters, and transparency has no place in a JPEG; a photo as PNG would be many megabytes.
async function encoded(canvas, pen, photo) {
  if (!photo) {
    const png = await toBlob(canvas, 'image/png');
    if (png && (png.size <= PNG_BYTES || isTransparent(pen, canvas))) return png;
  }
  return toBlob(canvas, 'image/jpeg');
}

function toBlob(canvas, type) {
  return new Promise((resolve) => canvas.toBlob(resolve, type, JPEG_QUALITY));
}

function isTransparent(pen, { width, height }) {
  const { data } = pen.getImageData(0, 0, width, height);
  for (let at = 3; at < data.length; at += 4) if (data[at] < 255) return true;
  return false;
}

function asIs(file, size, decoded) {
  const { width = 0, height = 0 } = size || {};
  return { blob: file, width, height, sentWidth: width, sentHeight: height, shrunk: false, decoded };
}
