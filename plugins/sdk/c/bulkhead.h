// What a plugin in C is written with: JSON to read, results to return, and what the host does for a running call.
//
// A plugin defines `call`; its tools are described in tools.json. Every call runs in an instance of its own, which goes away with
// its memory, so nothing needs to be freed.

#ifndef BULKHEAD_H
#define BULKHEAD_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A value in a JSON text. `at` is NULL where there is none; every function takes that, and finds nothing in it.
typedef struct {
  const char *at;
  size_t length;
} bulkhead_json;

// What came of a call: a text for the model, and a JSON value for programs, or NULL.
typedef struct {
  const char *text;
  const char *structured;
  bool is_error;
} bulkhead_result;

// Defined by the plugin. The host has checked the arguments, a JSON object, against the tool's input schema.
bulkhead_result call(const char *tool, bulkhead_json arguments);

// ---------------------------------------------------------------------------------------------------------------------------------
// What the host does. `bulkhead_component.h` defines these for the component, `bulkhead_testing.h` for tests.

// Reports how far the work is; `done` must grow. `message` may be NULL.
void bulkhead_progress(double done, double total, const char *message);

// Waits without using CPU time.
void bulkhead_sleep(uint64_t milliseconds);

// Whether the call was cancelled: return soon, the result no longer matters. Ask in loops.
bool bulkhead_is_cancelled(void);

// The next message that the client sent to the running task, or NULL.
char *bulkhead_next_message(void);

// Writes down where the work is, in at most 256 KiB, so that a task whose host stops need not begin at its begin: if the tool does
// nothing but compute afterwards, it is called anew, and `bulkhead_restored` gives the state. Save as often as is convenient, and
// after each effect. False if the state is too large. In a call that is no task this does nothing.
bool bulkhead_save(const void *state, size_t bytes);

// The state that the tool was called anew with, and its length; NULL: it begins at its begin.
const void *bulkhead_restored(size_t *bytes);

// Sends a text to the log of the client and of the operator.
void bulkhead_log(const char *text);

// A setting of the operator, as JSON.
bulkhead_json bulkhead_setting(const char *key);

// What the client says of an extension of MCP, as far as the host knows that extension; `at` is NULL where the client does not have it.
bulkhead_json bulkhead_client_extension(const char *name);

// Whether the client shows views (MCP Apps). Where it does not, its user sees the text of a result alone.
static inline bool bulkhead_client_shows_views(void) {
  return bulkhead_client_extension("io.modelcontextprotocol/ui").at != NULL;
}

// ---------------------------------------------------------------------------------------------------------------------------------
// Texts.

// Memory, or the end of the call.
static inline void *bulkhead_allocate(size_t bytes) {
  void *memory = malloc(bytes == 0 ? 1 : bytes);
  if (memory == NULL) abort();
  return memory;
}

// A text made as by printf.
__attribute__((format(printf, 1, 2))) static inline char *bulkhead_format(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  if (length < 0) abort();
  char *text = bulkhead_allocate((size_t)length + 1);
  va_start(arguments, format);
  vsnprintf(text, (size_t)length + 1, format, arguments);
  va_end(arguments);
  return text;
}

// A text as a JSON string, with its quotes.
static inline char *bulkhead_quote(const char *text) {
  char *quoted = bulkhead_allocate(strlen(text) * 6 + 3), *end = quoted;
  *end++ = '"';
  for (; *text != 0; text++) {
    unsigned char byte = (unsigned char)*text;
    if (byte == '"' || byte == '\\') {
      *end++ = '\\';
      *end++ = (char)byte;
    } else if (byte < 0x20) {
      end += sprintf(end, "\\u%04x", byte);
    } else {
      *end++ = (char)byte;
    }
  }
  *end++ = '"';
  *end = 0;
  return quoted;
}

// ---------------------------------------------------------------------------------------------------------------------------------
// Results.

static inline bulkhead_result bulkhead_text(const char *text) {
  bulkhead_result result = {text, NULL, false};
  return result;
}

// A JSON value, which must satisfy the tool's output schema where it has one. It is the text as well.
static inline bulkhead_result bulkhead_structured(const char *json) {
  bulkhead_result result = {json, json, false};
  return result;
}

// The tool ran and did not succeed; a model reads why.
static inline bulkhead_result bulkhead_failed(const char *why) {
  bulkhead_result result = {why, NULL, true};
  return result;
}

// ---------------------------------------------------------------------------------------------------------------------------------
// JSON. What the host passes on is well-formed, and this reader relies on that.

static inline bool bulkhead_is_space(char byte) { return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r'; }

// Behind the string that begins here.
static inline const char *bulkhead_skip_string(const char *at, const char *end) {
  for (at++; at < end && *at != '"'; at++) {
    if (*at == '\\') at++;
  }
  return at < end ? at + 1 : end;
}

static inline const char *bulkhead_skip_space(const char *at, const char *end) {
  while (at < end && bulkhead_is_space(*at)) at++;
  return at;
}

// Behind the value that begins here, however deep it is.
static inline const char *bulkhead_skip_value(const char *at, const char *end) {
  size_t depth = 0;
  while (at < end) {
    if (*at == '"') {
      at = bulkhead_skip_string(at, end);
    } else if (*at == '{' || *at == '[') {
      depth++;
      at++;
    } else if (*at == '}' || *at == ']') {
      // The end of what the value is in.
      if (depth == 0) break;
      depth--;
      at++;
    } else if (depth > 0) {
      at++;
      continue;
    } else {
      while (at < end && !bulkhead_is_space(*at) && *at != ',' && *at != '}' && *at != ']') at++;
    }
    if (depth == 0) break;
  }
  return at;
}

// The value of a JSON text.
static inline bulkhead_json bulkhead_parse(const char *text) {
  const char *end = text + strlen(text), *at = bulkhead_skip_space(text, end);
  bulkhead_json value = {at, (size_t)(bulkhead_skip_value(at, end) - at)};
  return value;
}

// The string, decoded. NULL for other values, and for a string that holds a NUL.
static inline char *bulkhead_string(bulkhead_json value) {
  if (value.at == NULL || value.length < 2 || *value.at != '"') return NULL;
  // Escapes are longer than what they stand for.
  char *text = bulkhead_allocate(value.length), *end = text;
  const char *at = value.at + 1, *last = value.at + value.length - 1;
  while (at < last) {
    if (*at != '\\') {
      *end++ = *at++;
      continue;
    }
    static const char LETTERS[] = "bfnrt", STANDS_FOR[] = "\b\f\n\r\t";
    const char *letter = strchr(LETTERS, at[1]);
    if (at[1] != 'u') {
      *end++ = letter != NULL ? STANDS_FOR[letter - LETTERS] : at[1];
      at += 2;
      continue;
    }
    unsigned code = 0, low = 0;
    if (sscanf(at + 2, "%4x", &code) != 1 || code == 0) return NULL;
    at += 6;
    if (code >= 0xd800 && code < 0xdc00 && at + 6 <= last && at[0] == '\\' && at[1] == 'u' &&
        sscanf(at + 2, "%4x", &low) == 1 && low >= 0xdc00 && low < 0xe000) {
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
      at += 6;
    } else if (code >= 0xd800 && code < 0xe000) {
      // Half of a pair stands for nothing.
      code = 0xfffd;
    }
    if (code < 0x80) {
      *end++ = (char)code;
    } else if (code < 0x800) {
      *end++ = (char)(0xc0 | code >> 6);
      *end++ = (char)(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
      *end++ = (char)(0xe0 | code >> 12);
      *end++ = (char)(0x80 | (code >> 6 & 0x3f));
      *end++ = (char)(0x80 | (code & 0x3f));
    } else {
      *end++ = (char)(0xf0 | code >> 18);
      *end++ = (char)(0x80 | (code >> 12 & 0x3f));
      *end++ = (char)(0x80 | (code >> 6 & 0x3f));
      *end++ = (char)(0x80 | (code & 0x3f));
    }
  }
  *end = 0;
  return text;
}

// The next element of an array, or member of an object, from `*at` on; `key` of a member goes there if it is asked for.
static inline bulkhead_json bulkhead_next(bulkhead_json all, const char **at, bulkhead_json *key) {
  bulkhead_json none = {NULL, 0};
  if (all.at == NULL || all.length < 2 || (*all.at != '{' && *all.at != '[')) return none;
  const char *end = all.at + all.length - 1;
  const char *from = bulkhead_skip_space(*at == NULL ? all.at + 1 : *at, end);
  if (from < end && *from == ',') from = bulkhead_skip_space(from + 1, end);
  if (from >= end) return none;
  if (*all.at == '{') {
    const char *after = bulkhead_skip_string(from, end);
    if (key != NULL) *key = (bulkhead_json){from, (size_t)(after - from)};
    from = bulkhead_skip_space(after, end);
    // The colon.
    from = bulkhead_skip_space(from < end ? from + 1 : end, end);
  }
  *at = bulkhead_skip_value(from, end);
  return (bulkhead_json){from, (size_t)(*at - from)};
}

// The member of an object. Of several with one name it is the last.
static inline bulkhead_json bulkhead_member(bulkhead_json object, const char *name) {
  bulkhead_json found = {NULL, 0}, key = {NULL, 0}, value;
  const char *at = NULL;
  if (object.at == NULL || *object.at != '{') return found;
  while ((value = bulkhead_next(object, &at, &key)).at != NULL) {
    char *text = bulkhead_string(key);
    if (text != NULL && strcmp(text, name) == 0) found = value;
    free(text);
  }
  return found;
}

// The element of an array, from 0.
static inline bulkhead_json bulkhead_element(bulkhead_json array, size_t index) {
  bulkhead_json value = {NULL, 0};
  const char *at = NULL;
  if (array.at == NULL || *array.at != '[') return value;
  do {
    value = bulkhead_next(array, &at, NULL);
  } while (value.at != NULL && index-- > 0);
  return value;
}

// The number, or `otherwise` for other values.
static inline double bulkhead_number(bulkhead_json value, double otherwise) {
  bool is_number = value.at != NULL && value.length > 0 && (*value.at == '-' || (*value.at >= '0' && *value.at <= '9'));
  return is_number ? strtod(value.at, NULL) : otherwise;
}

// The whole number, or `otherwise` for other values and for numbers beyond 64 bits.
static inline int64_t bulkhead_integer(bulkhead_json value, int64_t otherwise) {
  double number = bulkhead_number(value, 0.5);
  bool is_whole = number >= -9223372036854775808.0 && number < 9223372036854775808.0 && number == (double)(int64_t)number;
  if (!is_whole) return otherwise;
  // Digits alone are exact beyond 2^53 as well.
  bool is_plain = memchr(value.at, '.', value.length) == NULL && memchr(value.at, 'e', value.length) == NULL &&
                  memchr(value.at, 'E', value.length) == NULL;
  return is_plain ? (int64_t)strtoll(value.at, NULL, 10) : (int64_t)number;
}

// Whether the value is `true`.
static inline bool bulkhead_is_true(bulkhead_json value) {
  return value.at != NULL && value.length == 4 && memcmp(value.at, "true", 4) == 0;
}

#endif
