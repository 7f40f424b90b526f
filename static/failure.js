// Something went wrong and the reader can be told: a code of the server's, or `network`, or `lost`.

export class Failure extends Error {
  /** `detail` is the server's own sentence, if it sent one. */
  constructor(code, detail = '') {
    super(detail || code);
    this.code = code;
    this.detail = detail;
  }
}

// Faults of the file itself: sending it again cannot help.
const OF_PICTURE = new Set([
  'invalid_image', 'empty_image', 'image_file_too_large', 'image_too_large', 'unsupported_image_type', 'invalid_base64',
]);

export const isOfPicture = (failure) => OF_PICTURE.has(failure?.code);

const BY_STATUS = {
  401: 'unauthorized', 404: 'unknown_image', 413: 'image_file_too_large', 415: 'unsupported_image_type',
  429: 'rate_limited', 503: 'loading', 504: 'timeout',
};

/** The failure in a reply. A proxy may answer in the server's place, with a page instead of JSON. */
export function failureOf(status, text) {
  try {
    const { code, error } = JSON.parse(text);
    if (code) return new Failure(code, error);
  } catch {
    // not ours; the status has to do
  }
  return new Failure(BY_STATUS[status] || 'internal');
}
