// Pages of a PDF as pictures, drawn in the browser by a library that is fetched when the first PDF comes.

const PLACE = new URL('./vendor/pdfjs/', import.meta.url).href;
let loading = null;

/** Resolves to `{ count, draw(number, longestSide), close() }`; rejects when it is no PDF, or locked. */
export async function openPdf(file) {
  loading ??= load();
  const library = await loading.catch((error) => {
    loading = null;
    throw error;
  });
  const job = library.getDocument({
    data: new Uint8Array(await file.arrayBuffer()),
    cMapUrl: `${PLACE}cmaps/`, // many Chinese invoices name their characters by these
    cMapPacked: true,
    standardFontDataUrl: `${PLACE}standard_fonts/`,
    isEvalSupported: false,
    useWasm: false, // the page's security policy forbids it
  });
  const pdf = await job.promise;
  return {
    count: pdf.numPages,
    draw: (number, longestSide) => draw(pdf, number, longestSide),
    close: () => job.destroy(),
  };
}

async function load() {
  const library = await import('./vendor/pdfjs/pdf.js');
  library.GlobalWorkerOptions.workerSrc = `${PLACE}pdf.worker.js`;
  return library;
}

// Resolves to a PNG.
async function draw(pdf, number, longestSide) {
  const page = await pdf.getPage(number);
  const { width, height } = page.getViewport({ scale: 1 });
  const viewport = page.getViewport({ scale: longestSide / Math.max(width, height) });
  const canvas = document.createElement('canvas');
  Object.assign(canvas, { width: Math.floor(viewport.width), height: Math.floor(viewport.height) });
  await page.render({ canvas, viewport, background: 'white' }).promise;
  page.cleanup();
  return new Promise((resolve) => canvas.toBlob(resolve, 'image/png'));
}
