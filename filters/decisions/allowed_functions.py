"""The functions of DuckDB that a rule may call.

Each gives, for the values of one trace, the same result on every day and every machine, and does nothing else. Left
out are functions of time and time zone, of settings, users and catalogs, of randomness and waiting, functions that
raise errors or read files, those that take the name of a type, lambdas and aggregates by name, and digests that
change between versions of DuckDB (`hash`; there is `md5_number`). A new version's functions are refused until they
are listed here.
"""

_OPERATORS = (
    "+ - * / // % ** ^ ^@ & | ~ << >> @ || && !__postfix ~~ !~~ ~~* !~~* ~~~ ->> = != < <= > >= <@ @> "
    "like_escape not_like_escape ilike_escape not_ilike_escape __between"
)
_NUMBERS = (
    "abs acos acosh add asin asinh atan atan2 atanh bit_count cbrt ceil ceiling cos cosh cot degrees divide even "
    "exp factorial fdiv floor fmod gamma gcd greatest greatest_common_divisor isfinite isinf isnan lcm least "
    "least_common_multiple lgamma ln log log10 log2 mod multiply nextafter pi pow power radians round round_even "
    "roundbankers sign signbit sin sinh sqrt subtract tan tanh trunc xor"
)
_TEXTS = (
    "array_length ascii bar bit_length char_length character_length chr concat concat_ws contains "
    "damerau_levenshtein editdist3 ends_with format formatreadablesize from_base64 hamming hex instr jaccard "
    "jaro_similarity jaro_winkler_similarity lcase left left_grapheme len length length_grapheme levenshtein lower "
    "lpad ltrim mismatches nfc_normalize octet_length ord overlay position prefix printf regexp_escape "
    "regexp_extract regexp_extract_all regexp_full_match regexp_matches regexp_replace regexp_split_to_array "
    "replace reverse right right_grapheme rpad rtrim split split_part starts_with str_split str_split_regex "
    "string_split string_split_regex string_to_array strip_accents strlen strpos substr substring "
    "substring_grapheme suffix to_base to_base64 to_binary to_hex translate trim ucase unicode upper url_decode "
    "url_encode"
)
_LISTS = (
    "array_append array_cat array_concat array_contains array_distinct array_extract array_has array_has_all "
    "array_has_any array_indexof array_intersect array_pop_back array_pop_front array_position array_prepend "
    "array_push_back array_push_front array_resize array_reverse array_reverse_sort array_slice array_sort "
    "array_to_string array_unique array_value array_where array_zip cardinality element_at flatten list_any_value "
    "list_append list_avg list_bit_and list_bit_or list_bit_xor list_bool_and list_bool_or list_cat list_concat "
    "list_contains list_count list_distinct list_element list_extract list_first list_has list_has_all list_has_any "
    "list_indexof list_intersect list_last list_max list_median list_min list_pack list_position list_prepend "
    "list_product list_resize list_reverse list_reverse_sort list_select list_slice list_sort list_stddev_pop "
    "list_stddev_samp list_string_agg list_sum list_unique list_value list_var_pop list_var_samp list_where "
    "list_zip map map_concat map_contains map_entries map_extract map_extract_value map_from_entries map_keys "
    "map_values row struct_concat struct_contains struct_extract struct_extract_at struct_has struct_insert "
    "struct_keys struct_pack struct_values"
)
_JSON = (
    "json json_array json_array_length json_contains json_exists json_extract json_extract_path "
    "json_extract_path_text json_extract_string json_keys json_merge_patch json_object json_quote json_structure "
    "json_type json_valid json_value to_json"
)
_DATES = (
    "century date_add date_diff date_part date_sub date_trunc datediff datepart datesub datetrunc day dayname "
    "dayofmonth dayofweek dayofyear days_in_month decade epoch epoch_ms era hour isodow isoyear julian last_day "
    "make_date make_time make_timestamp microsecond millennium millisecond minute month monthname nanosecond "
    "quarter second to_centuries to_days to_decades to_hours to_microseconds to_millennia to_milliseconds "
    "to_minutes to_months to_quarters to_seconds to_weeks to_years week weekday weekofyear year yearweek"
)
_OTHERS = "constant_or_null if md5 md5_number md5_number_lower md5_number_upper nullif sha1 sha256 switch typeof"

ALLOWED = frozenset(" ".join((_OPERATORS, _NUMBERS, _TEXTS, _LISTS, _JSON, _DATES, _OTHERS)).split())
NAMES = tuple(sorted(name for name in ALLOWED if name[0].isalpha()))
"""The allowed functions that are names, not operators."""

LOCAL_TYPES = frozenset(
    {"timestamptz", "timestamptz_ns", "timestamp with time zone", "timetz", "time with time zone"}
)
"""What a value of these types says depends on the machine's time zone."""
