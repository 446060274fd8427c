#include "bulkhead_testing.h"

int main(void) {
  bulkhead_result greeting = call("greet", bulkhead_parse("{\"name\": \"Ada\"}"));
  BULKHEAD_EXPECT(bulkhead_same(greeting.text, "Hello, Ada!") && !greeting.is_error);

  // A message stops the countdown.
  bulkhead_host.messages[0] = "stop";
  bulkhead_result counted = call("countdown", bulkhead_parse("{\"seconds\": 10}"));
  BULKHEAD_EXPECT(bulkhead_same(counted.structured, "{\"left\": 9, \"messages\": [\"stop\"]}"));
  BULKHEAD_EXPECT(bulkhead_host.slept_ms == 1000);
  return 0;
}
