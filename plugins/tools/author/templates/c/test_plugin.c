#include "bulkhead_testing.h"

static void greets_by_name(void) {
  bulkhead_result greeting = call("greet", bulkhead_parse("{\"name\": \"Ada\"}"));
  BULKHEAD_EXPECT(bulkhead_same(greeting.text, "Hello, Ada!") && !greeting.is_error);
}

static void message_stops_the_countdown(void) {
  bulkhead_host.messages[0] = "stop";
  bulkhead_result counted = call("countdown", bulkhead_parse("{\"seconds\": 10}"));
  BULKHEAD_EXPECT(bulkhead_same(counted.structured, "{\"left\": 9, \"messages\": [\"stop\"]}"));
  BULKHEAD_EXPECT(bulkhead_host.slept_ms == 1000);
}

int main(void) {
  BULKHEAD_RUN(greets_by_name);
  BULKHEAD_RUN(message_stops_the_countdown);
  return 0;
}
