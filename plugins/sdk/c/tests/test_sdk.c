// The reader and writer of JSON, and the stand-in of the host.

#include "bulkhead_testing.h"

bulkhead_result call(const char *tool, bulkhead_json arguments) {
  (void)arguments;
  return bulkhead_failed(tool);
}

static const char *string(const char *json) { return bulkhead_string(bulkhead_parse(json)); }

static void strings_are_decoded(void) {
  BULKHEAD_EXPECT(bulkhead_same(string(" \"a\\\"b\\\\c\\/d\\n\" "), "a\"b\\c/d\n"));
  BULKHEAD_EXPECT(bulkhead_same(string("\"\\u00e9\\u20ac\\ud83d\\ude00\""), "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"));
  BULKHEAD_EXPECT(bulkhead_same(string("\"\\ud83dx\\ude00\""), "\xef\xbf\xbdx\xef\xbf\xbd"));
  BULKHEAD_EXPECT(bulkhead_same(string("\"\""), ""));
  BULKHEAD_EXPECT(string("\"a\\u0000b\"") == NULL);
  BULKHEAD_EXPECT(string("12") == NULL && string("{}") == NULL && string("") == NULL);
}

static void members_and_elements_are_found(void) {
  bulkhead_json object = bulkhead_parse(
      "{ \"a\" : [1, {\"x\": [2, \"]}\"]}, \"three\"] , \"\\u0062\":{\"deep\":true},\"c\":null, \"a b\": -4.5e1,\"twice\":1,\"twice\":2}");
  bulkhead_json array = bulkhead_member(object, "a");
  BULKHEAD_EXPECT(bulkhead_integer(bulkhead_element(array, 0), -1) == 1);
  BULKHEAD_EXPECT(bulkhead_same(bulkhead_string(bulkhead_element(array, 2)), "three"));
  BULKHEAD_EXPECT(bulkhead_element(array, 3).at == NULL);
  bulkhead_json inner = bulkhead_member(bulkhead_element(array, 1), "x");
  BULKHEAD_EXPECT(bulkhead_same(bulkhead_string(bulkhead_element(inner, 1)), "]}"));
  BULKHEAD_EXPECT(bulkhead_is_true(bulkhead_member(bulkhead_member(object, "b"), "deep")));
  BULKHEAD_EXPECT(!bulkhead_is_true(bulkhead_member(object, "c")) && bulkhead_member(object, "c").at != NULL);
  BULKHEAD_EXPECT(bulkhead_number(bulkhead_member(object, "a b"), 0) == -45.0);
  BULKHEAD_EXPECT(bulkhead_integer(bulkhead_member(object, "twice"), 0) == 2);
  BULKHEAD_EXPECT(bulkhead_member(object, "none").at == NULL && bulkhead_member(array, "a").at == NULL);
  BULKHEAD_EXPECT(bulkhead_element(object, 0).at == NULL);
  BULKHEAD_EXPECT(bulkhead_member(bulkhead_parse("{}"), "a").at == NULL && bulkhead_element(bulkhead_parse("[ ]"), 0).at == NULL);
  bulkhead_json none = {NULL, 0};
  BULKHEAD_EXPECT(bulkhead_member(none, "a").at == NULL && bulkhead_element(none, 0).at == NULL && bulkhead_string(none) == NULL);
}

static void whole_numbers_are_exact(void) {
  BULKHEAD_EXPECT(bulkhead_integer(bulkhead_parse("9007199254740993"), 0) == INT64_C(9007199254740993));
  BULKHEAD_EXPECT(bulkhead_integer(bulkhead_parse("1e2"), 0) == 100 && bulkhead_integer(bulkhead_parse("-2.0"), 0) == -2);
  BULKHEAD_EXPECT(bulkhead_integer(bulkhead_parse("1.5"), -7) == -7 && bulkhead_integer(bulkhead_parse("1e300"), -7) == -7);
  BULKHEAD_EXPECT(bulkhead_integer(bulkhead_parse("\"1\""), -7) == -7);
}

static void deep_values_are_passed_over(void) {
  size_t depth = 200000;
  char *text = bulkhead_allocate(2 * depth + 16);
  memcpy(text, "[", 1);
  memset(text + 1, '[', depth);
  memset(text + 1 + depth, ']', depth);
  memcpy(text + 1 + 2 * depth, ",7]", 4);
  BULKHEAD_EXPECT(bulkhead_integer(bulkhead_element(bulkhead_parse(text), 1), 0) == 7);
}

static void texts_survive_quoting(void) {
  BULKHEAD_EXPECT(bulkhead_same(bulkhead_quote("a\"\\\n\x01\xc3\xa9"), "\"a\\\"\\\\\\u000a\\u0001\xc3\xa9\""));
  BULKHEAD_EXPECT(bulkhead_same(string(bulkhead_quote("a\"\\\n\x01\xc3\xa9")), "a\"\\\n\x01\xc3\xa9"));
}

static void stand_in_answers_from_its_script(void) {
  bulkhead_host.messages[0] = "one";
  bulkhead_host.settings[0][0] = "unit";
  bulkhead_host.settings[0][1] = "\"celsius\"";
  BULKHEAD_EXPECT(bulkhead_same(bulkhead_next_message(), "one") && bulkhead_next_message() == NULL);
  BULKHEAD_EXPECT(bulkhead_same(bulkhead_string(bulkhead_setting("unit")), "celsius"));
  BULKHEAD_EXPECT(bulkhead_setting("other").at == NULL && !bulkhead_is_cancelled());
  BULKHEAD_EXPECT(!bulkhead_client_shows_views());
  bulkhead_host.shows_views = true;
  BULKHEAD_EXPECT(bulkhead_client_shows_views() && bulkhead_client_extension("x").at == NULL);
  bulkhead_log("said");
  bulkhead_progress(3, 4, NULL);
  BULKHEAD_EXPECT(bulkhead_same(bulkhead_host.logged, "said") && bulkhead_host.done == 3);
  BULKHEAD_EXPECT(call("x", bulkhead_parse("{}")).is_error);
}

static void state_is_saved_and_restored(void) {
  size_t bytes = 1;
  BULKHEAD_EXPECT(bulkhead_restored(&bytes) == NULL && bytes == 0);
  BULKHEAD_EXPECT(bulkhead_save("40", 3) && bulkhead_same(bulkhead_host.saved, "40") && bulkhead_host.saved_bytes == 3);
  BULKHEAD_EXPECT(!bulkhead_save(bulkhead_host.saved, (256 << 10) + 1) && bulkhead_host.saved_bytes == 3);
  bulkhead_host.restored = "41";
  bulkhead_host.restored_bytes = 3;
  BULKHEAD_EXPECT(bulkhead_same(bulkhead_restored(&bytes), "41") && bytes == 3);
}

int main(void) {
  BULKHEAD_RUN(strings_are_decoded);
  BULKHEAD_RUN(members_and_elements_are_found);
  BULKHEAD_RUN(whole_numbers_are_exact);
  BULKHEAD_RUN(deep_values_are_passed_over);
  BULKHEAD_RUN(texts_survive_quoting);
  BULKHEAD_RUN(stand_in_answers_from_its_script);
  BULKHEAD_RUN(state_is_saved_and_restored);
  return 0;
}
