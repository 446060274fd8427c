// The page that clients show.

export const HTML = `{{view}}`;
