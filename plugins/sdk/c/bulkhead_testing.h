// Stands in for the host in tests that run without one: it answers from a script and remembers what the plugin said.
//
// Included by the one test program. `bulkhead_host` is the script, which is empty at the beginning of each test.

#ifndef BULKHEAD_TESTING_H
#define BULKHEAD_TESTING_H

#include "bulkhead.h"

static struct {
  // The messages to the running task; the first NULL ends them.
  const char *messages[16];
  // Pairs of key and JSON text; the first NULL ends them.
  const char *settings[16][2];
  bool is_cancelled;
  // What an earlier run of the tool saved, or NULL.
  const void *restored;
  size_t restored_bytes;
  // Whether the client shows views.
  bool shows_views;

  // What the plugin said and did.
  const void *saved;
  size_t saved_bytes;
  size_t messages_read;
  uint64_t slept_ms;
  double done;
  const char *logged;
} bulkhead_host;

void bulkhead_progress(double done, double total, const char *message) {
  (void)total;
  (void)message;
  bulkhead_host.done = done;
}

void bulkhead_sleep(uint64_t milliseconds) { bulkhead_host.slept_ms += milliseconds; }

bool bulkhead_is_cancelled(void) { return bulkhead_host.is_cancelled; }

char *bulkhead_next_message(void) {
  if (bulkhead_host.messages_read == sizeof bulkhead_host.messages / sizeof *bulkhead_host.messages) return NULL;
  const char *message = bulkhead_host.messages[bulkhead_host.messages_read];
  if (message == NULL) return NULL;
  bulkhead_host.messages_read++;
  return bulkhead_format("%s", message);
}

bool bulkhead_save(const void *state, size_t bytes) {
  if (bytes > 256 << 10) return false;
  void *saved = bulkhead_allocate(bytes);
  memcpy(saved, state, bytes);
  bulkhead_host.saved = saved;
  bulkhead_host.saved_bytes = bytes;
  return true;
}

const void *bulkhead_restored(size_t *bytes) {
  *bytes = bulkhead_host.restored_bytes;
  return bulkhead_host.restored;
}

void bulkhead_log(const char *text) { bulkhead_host.logged = bulkhead_format("%s", text); }

bulkhead_json bulkhead_setting(const char *key) {
  bulkhead_json none = {NULL, 0};
  for (size_t at = 0; at < sizeof bulkhead_host.settings / sizeof *bulkhead_host.settings; at++) {
    if (bulkhead_host.settings[at][0] == NULL) break;
    if (strcmp(bulkhead_host.settings[at][0], key) == 0) return bulkhead_parse(bulkhead_host.settings[at][1]);
  }
  return none;
}

bulkhead_json bulkhead_client_extension(const char *name) {
  bulkhead_json none = {NULL, 0};
  bool is_known = bulkhead_host.shows_views && strcmp(name, "io.modelcontextprotocol/ui") == 0;
  return is_known ? bulkhead_parse("{\"mimeTypes\": [\"text/html;profile=mcp-app\"]}") : none;
}

// Ends the test program with a failure unless it holds. Unlike assert it is never left out.
#define BULKHEAD_EXPECT(holds)                                                  \
  do {                                                                          \
    if (!(holds)) {                                                             \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #holds);       \
      exit(1);                                                                  \
    }                                                                           \
  } while (0)

// Runs one test, a function without arguments, and says its name when everything in it holds.
#define BULKHEAD_RUN(test)                                \
  do {                                                    \
    memset(&bulkhead_host, 0, sizeof bulkhead_host);      \
    test();                                               \
    printf("ok: %s\n", #test);                            \
  } while (0)

// Whether two texts are the same; NULL is like nothing.
static inline bool bulkhead_same(const char *one, const char *other) {
  return one != NULL && other != NULL && strcmp(one, other) == 0;
}

#endif
