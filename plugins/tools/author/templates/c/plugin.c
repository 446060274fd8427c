// Greets people, and counts down. tools.json describes the tools.

#include "bulkhead.h"

static bulkhead_result greet(bulkhead_json arguments) {
  const char *name = bulkhead_string(bulkhead_member(arguments, "name"));
  return name == NULL ? bulkhead_failed("name is not a text") : bulkhead_text(bulkhead_format("Hello, %s!", name));
}

static bulkhead_result countdown(bulkhead_json arguments) {
  int64_t seconds = bulkhead_integer(bulkhead_member(arguments, "seconds"), 0);
  const char *messages = "", *message;
  int64_t left = seconds;
  bool is_stopped = false;
  while (left > 0 && !is_stopped && !bulkhead_is_cancelled()) {
    bulkhead_progress((double)(seconds - left), (double)seconds, bulkhead_format("%lld s left", (long long)left));
    bulkhead_sleep(1000);
    left--;
    while ((message = bulkhead_next_message()) != NULL) {
      messages = bulkhead_format("%s%s%s", messages, *messages == 0 ? "" : ", ", bulkhead_quote(message));
      is_stopped = is_stopped || strcmp(message, "stop") == 0;
    }
  }
  return bulkhead_structured(bulkhead_format("{\"left\": %lld, \"messages\": [%s]}", (long long)left, messages));
}

bulkhead_result call(const char *tool, bulkhead_json arguments) {
  if (strcmp(tool, "greet") == 0) return greet(arguments);
  if (strcmp(tool, "countdown") == 0) return countdown(arguments);
  return bulkhead_failed("there is no such tool");
}
